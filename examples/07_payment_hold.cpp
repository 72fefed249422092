// A payment at a bank whose answer may be missing. Payments run under `hold`: when it is not known whether
// the bank has charged, nobody charges again until somebody has found out.

#include <idempotency/codecs/json.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "expect.hpp"

namespace idem = idempotency;

struct Order {
  std::string id;
  std::int64_t cents = 0;
};

struct Receipt {
  std::string order_id;
  std::string charge_id;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Receipt, order_id, charge_id)
};
template <>
struct idempotency::Codec<Receipt> : idempotency::JsonCodec<Receipt> {
  static constexpr std::string_view name = "receipt";  // stands in the record
};

/// Charges whatever it is asked for, and sometimes does not answer.
class Bank {
 public:
  bool open = true;
  bool answers = true;
  std::vector<std::string> charged;  ///< references

  std::string charge(const std::string& reference) {
    charged.push_back(reference);
    if (!answers) throw std::runtime_error("the connection to the bank broke");
    return "charge-" + std::to_string(charged.size());
  }
};

int main() {
  idem::MemoryStore store;
  idem::IdempotencyGuard guard{store};
  Bank bank;

  const auto pay = [&](const Order& order) {
    return guard.run(
        {.key = {"payment", order.id}, .fingerprint = idem::Fingerprint::of(order.id, order.cents)},
        [&](idem::Execution& execution) {
          if (order.cents <= 0) throw idem::PermanentFailure("the amount must be positive");
          if (!bank.open) throw std::runtime_error("the bank is closed");
          execution.point_of_no_return();  // before: "try again"; after: "it may have happened"
          // The same on every attempt: the bank's own key for this charge.
          return Receipt{order.id, bank.charge(execution.derived_key("charge"))};
        });
  };
  const auto pay_and_catch = [&](const Order& order) {
    try {
      static_cast<void>(pay(order));
      return std::string();
    } catch (const std::exception& problem) {
      return std::string(problem.what());  // the handler's own exception, always
    }
  };

  expect(pay({"order-1", 990}).value().charge_id == "charge-1", "a payment is charged");
  expect(pay({"order-1", 990}).value().charge_id == "charge-1",
         "a repetition gets the same receipt");
  expect(pay({"order-1", 999}).status() == idem::RunStatus::mismatch,
         "another amount for the same order is refused");

  bank.open = false;
  expect(pay_and_catch({"order-2", 990}) == "the bank is closed", "a failure before the charge");
  bank.open = true;
  expect(pay({"order-2", 990}).status() == idem::RunStatus::executed, "can be tried again");

  bank.answers = false;
  expect(!pay_and_catch({"order-3", 990}).empty(), "a failure after the charge may have been sent");
  bank.answers = true;
  expect(pay({"order-3", 990}).status() == idem::RunStatus::uncertain, "blocks further attempts");
  expect(bank.charged.size() == 3, "so that the bank is not asked a second time");
  expect(bank.charged.back() == idem::derived_key({"payment", "order-3"}, "charge"),
         "and can be asked about the charge by its reference: see 05_reconcile");

  expect(!pay_and_catch({"order-4", 0}).empty(), "a permanent failure");
  expect(pay({"order-4", 0}).status() == idem::RunStatus::failed, "is replayed as a failure");
}
