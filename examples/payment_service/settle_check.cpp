// The settler among failures: a question that the bank cannot answer must not keep the other payments from being
// settled, and a bank that is away must not be asked for every one of them in every pass.
//
//   settle_check            in the current folder

#include <httplib.h>

#include <atomic>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/any.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "../expect.hpp"
#include "bank_client.hpp"
#include "payment.hpp"
#include "settle.hpp"

namespace {

namespace idem = idempotency;

/// A bank that has charged for everything it is asked about, when it can say so.
class Bank {
 public:
  enum class Trouble { none, refuses, speaks_nonsense };

  Bank() {
    server_.Get("/charges/.*",
                [this](const httplib::Request& request, httplib::Response& response) {
                  ++questions_;
                  answer(request.path.substr(std::string("/charges/").size()), response);
                });
    port_ = server_.bind_to_any_port("127.0.0.1");  // connections are accepted from here on
    thread_ = std::jthread([this] { server_.listen_after_bind(); });
  }
  Bank(const Bank&) = delete;
  Bank& operator=(const Bank&) = delete;
  ~Bank() { server_.stop(); }

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] int take_questions() noexcept { return questions_.exchange(0); }
  void is_away(bool away) noexcept { away_ = away; }
  void trouble_with(const idem::Key& key, Trouble trouble) {
    const std::scoped_lock lock(mutex_);
    const std::string reference = idem::derived_key(key, shop::charge_name);
    refused_.erase(reference);
    nonsense_.erase(reference);
    if (trouble == Trouble::refuses) refused_.insert(reference);
    if (trouble == Trouble::speaks_nonsense) nonsense_.insert(reference);
  }

 private:
  void answer(const std::string& reference, httplib::Response& response) {
    const std::scoped_lock lock(mutex_);
    if (away_ || refused_.contains(reference)) {
      response.status = 503;
      return;
    }
    const nlohmann::json charge{{"count", 1}, {"charge_ids", {"ch-1"}}, {"cents", 100}};
    response.set_content(nonsense_.contains(reference) ? "<html>" : charge.dump(),
                         "application/json");
  }

  httplib::Server server_;
  int port_ = 0;
  std::atomic<int> questions_{0};
  std::atomic<bool> away_{false};
  std::mutex mutex_;
  std::set<std::string> refused_;
  std::set<std::string> nonsense_;
  std::jthread thread_;
};

void leave_uncertain(idem::SqliteStore& store, const idem::Key& key) {
  const idem::BeginRequest request{
      .key = key, .owner = idem::OwnerToken::generate(), .mode = idem::RecordMode::hold};
  const auto begun = std::get<idem::Acquired>(store.begin(request));
  static_cast<void>(store.doubt(key, {request.owner, begun.fence}));
}

}  // namespace

int main() {
  idem::SqliteStore store{{.path = new_database("settle_check.db")}};
  Bank bank;
  const shop::BankClient client(bank.port());
  idem::AnyStore records{store};
  const auto settler = shop::make_settler(
      records, {.type = "payment", .ask = shop::ask_bank(client), .journal = "settle_check.jsonl"});
  const auto settle_all = [&] {
    while (store.statistics().uncertain != 0)
      static_cast<void>(settler->run_once());
  };
  const idem::Key refused{"payment", "order-1"};
  const idem::Key nonsense{"payment", "order-2"};
  const idem::Key fine{"payment", "order-3"};
  for (const idem::Key& key : {refused, nonsense, fine})
    leave_uncertain(store, key);

  bank.trouble_with(refused, Bank::Trouble::refuses);
  bank.trouble_with(nonsense, Bank::Trouble::speaks_nonsense);
  const idem::ReconcileReport among_failures = settler->run_once();
  expect(among_failures.settled() == 1 && among_failures.threw == 2,
         "the payment behind two failures is settled in the same pass");

  bank.trouble_with(refused, Bank::Trouble::none);
  bank.trouble_with(nonsense, Bank::Trouble::none);
  settle_all();
  expect(true, "later passes settle what had failed");

  constexpr int many = 60;
  for (int order = 0; order < many; ++order)
    leave_uncertain(store, {"payment", "bulk-" + std::to_string(order)});
  bank.is_away(true);
  static_cast<void>(bank.take_questions());
  const idem::ReconcileReport away = settler->run_once();
  const int asked_in_vain = bank.take_questions();
  expect(away.threw > 0 && asked_in_vain < many, "a bank that is away ends the pass early");

  bank.is_away(false);
  expect(settler->run_once().settled() >= static_cast<std::size_t>(many - asked_in_vain),
         "the next pass goes on behind them");
  settle_all();
  expect(store.statistics().uncertain == 0, "nothing stays open");
}
