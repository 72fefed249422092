#pragma once

#include <cstdint>
#include <idempotency/codecs/json.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace shop {

/// What a customer asks for.
struct Payment {
  std::string order_id;
  std::int64_t cents = 0;
  std::string card;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Payment, order_id, cents, card)
};

/// What the customer gets, every time the same.
struct Receipt {
  std::string order_id;
  std::int64_t cents = 0;
  std::string charge_id;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Receipt, order_id, cents, charge_id)
};

/// Money from one account to another, in the service's own ledger.
struct Transfer {
  std::string transfer_id;
  std::string from;
  std::string to;
  std::int64_t cents = 0;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Transfer, transfer_id, from, to, cents)
};

/// What a payment gateway calls back with: the customer has paid, so credit the account.
struct Callback {
  std::string event_id;
  std::string account;
  std::int64_t cents = 0;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Callback, event_id, account, cents)
};

/// The name under which the bank knows the charge of a payment; see `Execution::derived_key`.
inline constexpr const char* charge_name = "charge";

}  // namespace shop

/// How a receipt is kept in a record: once, beside the type.
template <>
struct idempotency::Codec<shop::Receipt> : idempotency::JsonCodec<shop::Receipt> {
  static constexpr std::string_view name = "receipt";  // stands in the record
};
