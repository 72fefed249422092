#include "settle.hpp"

#include <chrono>
#include <fstream>
#include <idempotency/clock.hpp>
#include <idempotency/codec.hpp>
#include <idempotency/execution.hpp>
#include <iostream>
#include <optional>

#include "payment.hpp"

namespace shop {

namespace idem = idempotency;

namespace {

constexpr std::size_t page_size = 20;
constexpr std::size_t too_many_failures = 5;  ///< in one page

/// When the one that ran the operation fell silent, or nothing while its lease still runs.
std::optional<idem::Timestamp> silent_since(const idem::Record& record, idem::Timestamp now) {
  if (record.state == idem::RecordState::uncertain) return record.updated_at;
  if (record.lease_until && *record.lease_until <= now) return record.lease_until;
  return std::nullopt;
}

}  // namespace

Settler::Pass Settler::settle_what_is_open() {
  Pass pass;
  settle_all(idem::RecordState::uncertain, after_uncertain_, pass);
  // Of these some: their lease ran out and nobody has asked since.
  settle_all(idem::RecordState::processing, after_processing_, pass);
  return pass;
}

void Settler::settle_all(idem::RecordState state, std::string& cursor, Pass& pass) {
  const idem::RecordFilter filter{.type = type_, .state = state};
  do {
    const idem::RecordPage page = store_->list(filter, cursor, page_size);
    const std::size_t failed_before = pass.failed;
    for (const idem::Record& record : page.records) {
      try {
        settle(record, pass);
      } catch (const std::exception& error) {  // the others need not wait for this one: next pass
        ++pass.failed;
        std::cerr << "not settled yet: " << record.key.text() << ": " << error.what() << '\n';
      }
    }
    cursor = page.cursor;
    if (pass.failed - failed_before >= too_many_failures) return;
  } while (!cursor.empty());
}

void Settler::settle(const idem::Record& record, Pass& pass) {
  const idem::Timestamp now = idem::system_clock().now();  // before the other system is asked
  const std::optional<idem::Timestamp> since = silent_since(record, now);
  if (!since) return;

  idem::Resolution resolution;
  if (auto result = ask_(record.key)) {
    resolution.verdict = idem::Resolution::Verdict::succeeded;
    resolution.result = *std::move(result);
    resolution.retention = std::chrono::hours{24 * 30};
  } else if (now > *since + patience) {
    resolution.verdict = idem::Resolution::Verdict::retry;
  } else {
    return;  // it may still be on its way
  }

  // The record as it was seen: when its owner has come back after all, this changes nothing.
  const auto outcome = store_->resolve(record, resolution);
  // When its answer is lost, the next pass looks anew: the record is settled, or still as it was.
  if (outcome == idem::WriteOutcome::lost) return;
  ++pass.settled;
  write_down(record, resolution.result ? "succeeded" : "retry");
}

void Settler::write_down(const idem::Record& record, const char* verdict) const {
  const nlohmann::json line{{"type", type_},
                            {"id", std::string(record.key.value())},
                            {"was", std::string(idem::to_string(record.state))},
                            {"verdict", verdict}};
  std::ofstream(journal_, std::ios::app) << line.dump() + '\n' << std::flush;
}

Settler::Ask ask_bank(const BankClient& bank) {
  return [&bank](const idem::Key& key) -> std::optional<std::string> {
    const auto charge = bank.find(idem::derived_key(key, charge_name));
    if (!charge) return std::nullopt;
    return idem::encode_result(Receipt{std::string(key.value()), charge->cents, charge->id});
  };
}

Settler::Ask ask_ledger(Ledger& ledger) {
  return [&ledger](const idem::Key& key) -> std::optional<std::string> {
    const std::vector<std::int64_t> entries = ledger.find(std::string(key.text()));
    if (entries.empty()) return std::nullopt;
    return idem::encode_result(entries.front());
  };
}

}  // namespace shop
