// A payment service that survives its own death. Every request may be sent any number of times.
//
//   POST /payments   {"order_id", "cents", "card"}              charges the card at the bank (mode: hold)
//   POST /transfers  {"transfer_id", "from", "to", "cents"}     books in the ledger (in the record's transaction)
//   POST /callbacks  {"event_id", "account", "cents"}           the same, for a payment gateway's callback
//   GET  /ledger/<transfer or event id>                         {"rows"}
//   GET  /open                                                  {"payments"}: not yet finished or settled
//
//   payment_service --folder FOLDER [--bank-port N] [--guard on|off] [--connections N]
//
// `--guard off` runs the same handlers without the guard, to see the difference. Without a bank there are
// no payments.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/sqlite.hpp>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

#include "arguments.hpp"
#include "bank_client.hpp"
#include "ledger.hpp"
#include "loopback_server.hpp"
#include "payment.hpp"
#include "replies.hpp"
#include "settle.hpp"

namespace {

namespace idem = idempotency;
using namespace std::chrono_literals;
using idem::SqliteTransaction;
using shop::Callback;
using shop::Payment;
using shop::Receipt;
using shop::Transfer;

enum class GuardSwitch { on, off };

/// The built-in policy of payments (30 days, `hold`), with a short lease so that the service's death
/// is noticed within seconds, and a little patience for duplicates of a payment that is running.
idem::PolicyTable policies() {
  idem::PolicyTable table;
  idem::Policy payment = table.find("payment");
  payment.lease = 2s;
  payment.wait = 500ms;
  idem::Policy booking = table.find("transfer");
  booking.success_retention = payment.success_retention;
  return table.set("payment", payment).set("transfer", booking).set("callback", booking);
}

class PaymentService {
 public:
  PaymentService(idem::SqliteStore& store, const shop::BankClient& bank, GuardSwitch guard_switch)
      : store_(&store),
        bank_(&bank),
        ledger_(store),
        guard_(store, {.policies = policies()}),
        guarded_(guard_switch == GuardSwitch::on) {}

  void post_payment(const httplib::Request& request, httplib::Response& response) {
    const auto payment = shop::parse<Payment>(request.body);
    const idem::Key key{"payment", payment.order_id};
    // Taken before the record is begun: a run that is paused, however long, cannot charge any more when the
    // settler finds that its lease has ended and that its patience is over as well.
    const shop::BankClient::Time valid_until = shop::BankClient::end_of_patience();
    if (!guarded_) {
      validate(payment);
      const std::string reference = idem::derived_key(key, shop::charge_name);
      return shop::reply(response, charge(payment, reference, valid_until), 201);
    }
    const idem::RunResult<Receipt> result =
        guard_.run({.key = key, .fingerprint = idem::Fingerprint::of_json(request.body)},
                   [&](idem::Execution& execution) {
                     validate(payment);
                     execution.point_of_no_return();  // from here on the bank may have charged
                     return charge(payment, execution.derived_key(shop::charge_name), valid_until);
                   });
    shop::reply(response, result);
  }

  void post_transfer(const httplib::Request& request, httplib::Response& response) {
    const auto transfer = shop::parse<Transfer>(request.body);
    book(request, response, {"transfer", transfer.transfer_id},
         [transfer](SqliteTransaction& transaction) {
           return shop::Ledger::add(transaction, transfer.transfer_id, transfer.from, transfer.to,
                                    transfer.cents);
         });
  }

  void post_callback(const httplib::Request& request, httplib::Response& response) {
    const auto callback = shop::parse<Callback>(request.body);
    book(request, response, {"callback", callback.event_id},
         [callback](SqliteTransaction& transaction) {
           return shop::Ledger::add(transaction, callback.event_id, "gateway", callback.account,
                                    callback.cents);
         });
  }

  void get_ledger(const httplib::Request& request, httplib::Response& response) {
    shop::reply(response, nlohmann::json{{"rows", ledger_.count(request.matches[1].str())}});
  }

  void get_open(httplib::Response& response) {
    const idem::StoreStatistics statistics = store_->statistics();
    shop::reply(response,
                nlohmann::json{{"payments", statistics.processing + statistics.uncertain}});
  }

 private:
  static void validate(const Payment& payment) {
    if (payment.cents <= 0) throw idem::PermanentFailure("the amount must be positive");
  }

  Receipt charge(const Payment& payment, const std::string& reference,
                 shop::BankClient::Time valid_until) {
    return {payment.order_id, payment.cents,
            bank_->charge(reference, payment.cents, payment.card, valid_until)};
  }

  /// Runs `entry` in one transaction with the record of its key.
  template <class Entry>
  void book(const httplib::Request& request, httplib::Response& response, const idem::Key& key,
            Entry entry) {
    const auto receipt = [&](std::int64_t number) {
      return nlohmann::json{{"id", std::string(key.value())}, {"entry", number}};
    };
    if (!guarded_) return shop::reply(response, receipt(ledger_.in_own_transaction(entry)), 201);
    const idem::RunResult<std::int64_t> result = guard_.run_in_transaction(
        {.key = key, .fingerprint = idem::Fingerprint::of_json(request.body)}, entry);
    shop::reply(response, result, receipt);
  }

  idem::SqliteStore* store_;
  const shop::BankClient* bank_;
  shop::Ledger ledger_;
  idem::IdempotencyGuard<idem::SqliteStore> guard_;
  bool guarded_;
};

/// A route whose exceptions become replies.
template <class Handler>
httplib::Server::Handler route(Handler handler) {
  return [handler](const httplib::Request& request, httplib::Response& response) {
    try {
      handler(request, response);
    } catch (const idem::Error& error) {
      shop::reply_to_error(response, error);
    }
  };
}

/// Settles open payments four times a second, on a thread of its own.
std::jthread settle_behind(shop::Settler& settler) {
  return std::jthread([&settler](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    while (!stop.stop_requested()) {
      try {
        settler.settle_open_payments();
      } catch (const std::exception& problem) {
        std::cerr << "payment_service: nothing settled: " << problem.what() << '\n';
      }
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, 250ms, [] { return false; });
    }
  });
}

}  // namespace

int main(int count, char** values) {
  try {
    shop::LoopbackServer server;
    const shop::Arguments arguments(count, values, {"folder", "bank-port", "guard", "connections"});
    const std::filesystem::path folder = arguments.text("folder");
    const int bank_port = arguments.number_or("bank-port", 0);
    const std::string guard = arguments.text_or("guard", "on");
    if (guard != "on" && guard != "off") throw std::invalid_argument("--guard is on or off");

    idem::SqliteStore store{{.path = (folder / "payments.db").string()}};
    const shop::BankClient bank(bank_port);
    PaymentService service(store, bank, guard == "on" ? GuardSwitch::on : GuardSwitch::off);
    shop::Settler settler(store, bank, (folder / "settlements.jsonl").string());

    httplib::Server& http = server.http();
    if (bank_port != 0) {
      http.Post("/payments", route([&](auto& request, auto& response) {
                  service.post_payment(request, response);
                }));
    }
    http.Post("/transfers", route([&](auto& request, auto& response) {
                service.post_transfer(request, response);
              }));
    http.Post("/callbacks", route([&](auto& request, auto& response) {
                service.post_callback(request, response);
              }));
    http.Get(R"(/ledger/([\w.-]+))",
             route([&](auto& request, auto& response) { service.get_ledger(request, response); }));
    http.Get("/open",
             route([&](auto& /*request*/, auto& response) { service.get_open(response); }));

    std::jthread settling;
    if (bank_port != 0) settling = settle_behind(settler);
    server.serve(static_cast<std::size_t>(arguments.number_or("connections", 64)));
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "payment_service: " << problem.what() << '\n';
    return 1;
  }
}
