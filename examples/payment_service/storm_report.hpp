#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace shop {

/// What one storm did and what came of it.
struct StormReport {
  std::string guard;     ///< "on" or "off"
  std::string bookings;  ///< "in-transaction" or "hold"
  std::int64_t seed = 0;
  std::int64_t seconds = 0;

  std::int64_t requests = 0;         ///< sent, repetitions and all
  std::int64_t replies_dropped = 0;  ///< the client hung up before it read the reply
  std::int64_t kills = 0;            ///< SIGKILLs of the service
  std::int64_t replayed = 0;         ///< replies that came from the record
  std::int64_t keys_differing = 0;   ///< keys whose final replies were not all the same

  std::int64_t payments = 0;
  std::int64_t payments_declined = 0;  ///< refused by the bank, as planned
  std::int64_t charges = 0;
  std::int64_t payments_charged_twice = 0;  ///< twice or more
  std::int64_t cents_too_much = 0;
  std::int64_t payments_lost =
      0;                     ///< no final reply, or one that the bank's book does not bear out
  std::int64_t misuses = 0;  ///< a finished payment's id with another amount
  std::int64_t misuses_refused = 0;

  std::int64_t transfers = 0;
  std::int64_t ledger_rows = 0;
  std::int64_t transfers_booked_twice = 0;
  std::int64_t transfers_lost = 0;

  std::int64_t settled_as_succeeded = 0;  ///< the bank knew the charge
  std::int64_t settled_as_retry = 0;      ///< the bank knew of none
  std::int64_t bookings_settled = 0;  ///< by asking the ledger, when it is apart from the records
  std::int64_t left_open = 0;         ///< neither finished nor settled when all was over

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(StormReport, guard, bookings, seed, seconds, requests,
                                 replies_dropped, kills, replayed, keys_differing, payments,
                                 payments_declined, charges, payments_charged_twice, cents_too_much,
                                 payments_lost, misuses, misuses_refused, transfers, ledger_rows,
                                 transfers_booked_twice, transfers_lost, settled_as_succeeded,
                                 settled_as_retry, bookings_settled, left_open)
};

}  // namespace shop
