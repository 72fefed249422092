#include "settle.hpp"

#include <chrono>
#include <fstream>
#include <idempotency/codec.hpp>
#include <idempotency/execution.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "patience.hpp"
#include "payment.hpp"

namespace shop {

namespace idem = idempotency;
using namespace std::chrono_literals;

namespace {

void write_down(const idem::ReconcileEvent& event, const std::string& journal) {
  const bool released = event.step == idem::ReconcileStep::released;
  const nlohmann::json line{{"type", std::string(event.record.key.type())},
                            {"id", std::string(event.record.key.value())},
                            {"was", std::string(idem::to_string(event.record.state))},
                            {"verdict", released ? "retry" : "succeeded"}};
  std::ofstream(journal, std::ios::app) << line.dump() + '\n' << std::flush;
}

void tell(const idem::ReconcileEvent& event, const std::string& journal) {
  switch (event.step) {
    case idem::ReconcileStep::succeeded:
    case idem::ReconcileStep::released:
      write_down(event, journal);
      return;
    case idem::ReconcileStep::threw:
    case idem::ReconcileStep::parked:
    case idem::ReconcileStep::store_failed:
      std::cerr << "not settled yet: " << event.record.key.text() << ": " << event.why << '\n';
      return;
    default:
      return;
  }
}

}  // namespace

std::unique_ptr<idem::Reconciler> make_settler(idem::AnyStore& store,
                                               const SettlerOptions& options) {
  idem::ReconcilerOptions reconciling;
  reconciling.types = {options.type};
  reconciling.policies = options.policies;
  reconciling.margin = patience + 1ms;  // what was not done by then is refused
  reconciling.lease = patience + 2s;    // longer than a question takes
  reconciling.first_pause = 250ms;
  reconciling.longest_pause = 2s;
  reconciling.max_questions = 1'000;  // nobody looks after this service
  reconciling.every = 250ms;
  reconciling.on_record = [journal = options.journal](const idem::ReconcileEvent& event) {
    tell(event, journal);
  };
  const auto resolve = [ask = options.ask](const idem::Record& record) {
    std::optional<std::string> result = ask(record.key);
    return result ? idem::Finding::succeeded_as(std::move(result)) : idem::Finding::retry();
  };
  return std::make_unique<idem::Reconciler>(store, resolve, reconciling);
}

Ask ask_bank(const BankClient& bank) {
  return [&bank](const idem::Key& key) -> std::optional<std::string> {
    const auto charge = bank.find(idem::derived_key(key, charge_name));
    if (!charge) return std::nullopt;
    return idem::encode_result(Receipt{std::string(key.value()), charge->cents, charge->id});
  };
}

Ask ask_ledger(Ledger& ledger) {
  return [&ledger](const idem::Key& key) -> std::optional<std::string> {
    const std::vector<std::int64_t> entries = ledger.find(std::string(key.text()));
    if (entries.empty()) return std::nullopt;
    return idem::encode_result(entries.front());
  };
}

}  // namespace shop
