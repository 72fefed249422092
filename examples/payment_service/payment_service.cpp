// A payment service that survives its own death. Every request may be sent any number of times.
//
//   POST /payments   {"order_id", "cents", "card"}              charges the card at the bank (mode: hold)
//   POST /transfers  {"transfer_id", "from", "to", "cents"}     books in the ledger (in the record's transaction
//                                                               where they share a database, else mode: hold)
//   POST /callbacks  {"event_id", "account", "cents"}           the same, for a payment gateway's callback
//   GET  /ledger/<transfer or callback>/<id>                    {"rows"}
//   GET  /open                                                  {"records"}: not yet finished or settled;
//                                                               {"bookings"}: in-transaction or hold
//
//   payment_service --folder FOLDER [--store URL] [--bank-port N] [--guard on|off] [--connections N]
//
// `--store` is where the records are: sqlite:FILE (the default: payments.db in the folder), mysql://..., redis://... or
// memory:. `--guard off` runs the same handlers without the guard, to see the difference. Without a bank there are
// no payments.

#include <chrono>
#include <filesystem>
#include <idempotency/idempotency.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "bank_client.hpp"
#include "books.hpp"
#include "ledger.hpp"
#include "loopback_server.hpp"
#include "payment.hpp"
#include "replies.hpp"
#include "settle.hpp"

namespace {

namespace idem = idempotency;
using namespace std::chrono_literals;
using shop::Callback;
using shop::Payment;
using shop::Receipt;
using shop::Transfer;

enum class GuardSwitch { on, off };

/// The built-in policy of payments (30 days, `hold`), with a short lease so that the service's death
/// is noticed within seconds, and a little patience for duplicates of a payment that is running.
idem::PolicyTable policies() {
  idem::PolicyTable table;
  const auto as_long = table.find("payment").success_retention;
  return table.set("payment", {.lease = 2s, .wait = 500ms})
      .set("transfer", {.success_retention = as_long})
      .set("callback", {.success_retention = as_long});
}

/// Says on stderr what in the set-up can lose records.
class HazardLog final : public idem::Observer {
 public:
  void on_hazard(std::string_view what) noexcept override {
    std::cerr << "payment_service: HAZARD: " << what << '\n';
  }
};

class PaymentService {
 public:
  PaymentService(shop::Books& books, const shop::BankClient& bank, GuardSwitch guard_switch)
      : admin_(books.records().admin()),
        ledger_(&books.ledger()),
        bank_(&bank),
        guard_(books.records(), {.policies = policies()}),
        guarded_(guard_switch == GuardSwitch::on) {}

  void post_payment(const httplib::Request& request, httplib::Response& response) {
    const auto payment = shop::parse<Payment>(request.body);
    const idem::Key key{"payment", payment.order_id};
    // Taken before the record is begun: a run that is paused, however long, cannot charge any more when the
    // settler finds that its lease has ended and that its patience is over as well.
    const shop::Time valid_until = shop::end_of_patience();
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
    book(request, response, {"transfer", transfer.transfer_id}, transfer.from, transfer.to,
         transfer.cents);
  }

  void post_callback(const httplib::Request& request, httplib::Response& response) {
    const auto callback = shop::parse<Callback>(request.body);
    book(request, response, {"callback", callback.event_id}, "gateway", callback.account,
         callback.cents);
  }

  void get_ledger(const httplib::Request& request, httplib::Response& response) {
    const idem::Key key{request.matches[1].str(), request.matches[2].str()};
    const std::size_t rows = ledger_->find(std::string(key.text())).size();
    shop::reply(response, nlohmann::json{{"rows", rows}});
  }

  void get_open(httplib::Response& response) {
    const idem::StoreStatistics statistics = admin_->statistics();
    const bool together = ledger_->mode() == shop::Ledger::Mode::in_transaction;
    shop::reply(response, nlohmann::json{{"records", statistics.processing + statistics.uncertain},
                                         {"bookings", together ? "in-transaction" : "hold"}});
  }

 private:
  static void validate(const Payment& payment) {
    if (payment.cents <= 0) throw idem::PermanentFailure("the amount must be positive");
  }

  Receipt charge(const Payment& payment, const std::string& reference, shop::Time valid_until) {
    return {payment.order_id, payment.cents,
            bank_->charge(reference, payment.cents, payment.card, valid_until)};
  }

  void book(const httplib::Request& request, httplib::Response& response, const idem::Key& key,
            const std::string& debit, const std::string& credit, std::int64_t cents) {
    const shop::Time valid_until = shop::end_of_patience();  // as for a payment
    const shop::Entry entry{std::string(key.text()), debit, credit, cents};
    const auto receipt = [&](std::int64_t number) {
      return nlohmann::json{{"id", std::string(key.value())}, {"entry", number}};
    };
    if (!guarded_) return shop::reply(response, receipt(ledger_->book_unguarded(entry)), 201);
    const idem::RunResult<std::int64_t> result = ledger_->book(
        {.key = key, .fingerprint = idem::Fingerprint::of_json(request.body)}, entry, valid_until);
    shop::reply(response, result, receipt);
  }

  idem::AnyAdminStore* admin_;
  shop::Ledger* ledger_;
  const shop::BankClient* bank_;
  idem::IdempotencyGuard<idem::AnyStore> guard_;
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

using Settlers = std::vector<std::unique_ptr<idem::Reconciler>>;

/// Who is asked about what: the bank about payments, and a ledger that is apart from the records about bookings.
Settlers settlers(shop::Books& books, const shop::BankClient* bank, const std::string& journal) {
  Settlers all;
  const auto add = [&](const char* type, shop::Ask ask) {
    all.push_back(shop::make_settler(
        books.records(),
        {.type = type, .ask = std::move(ask), .journal = journal, .policies = policies()}));
  };
  if (bank != nullptr) add("payment", shop::ask_bank(*bank));
  if (books.ledger().mode() == shop::Ledger::Mode::hold) {
    for (const char* type : {"transfer", "callback"})
      add(type, shop::ask_ledger(books.ledger()));
  }
  return all;
}

/// Each settles what is open on a thread of its own.
std::vector<std::jthread> settle_behind(const Settlers& settlers) {
  std::vector<std::jthread> threads;
  for (const auto& settler : settlers) {
    threads.emplace_back([&settler = *settler](const std::stop_token& stop) {
      try {
        settler.run(stop);
      } catch (const std::exception& problem) {
        std::cerr << "payment_service: nothing is settled any more: " << problem.what() << '\n';
      }
    });
  }
  return threads;
}

}  // namespace

int main(int count, char** values) {
  try {
    shop::LoopbackServer server;
    const shop::Arguments arguments(count, values,
                                    {"folder", "store", "bank-port", "guard", "connections"});
    const std::filesystem::path folder = arguments.text("folder");
    const int bank_port = arguments.number_or("bank-port", 0);
    const std::string guard = arguments.text_or("guard", "on");
    if (guard != "on" && guard != "off") throw std::invalid_argument("--guard is on or off");

    HazardLog hazards;
    const std::unique_ptr<shop::Books> books = shop::open_books(
        {.store = arguments.text_or("store", "sqlite:" + (folder / "payments.db").string()),
         .folder = folder,
         .policies = policies(),
         .observer = &hazards});
    const shop::BankClient bank(bank_port);
    PaymentService service(*books, bank, guard == "on" ? GuardSwitch::on : GuardSwitch::off);
    const Settlers settling =
        settlers(*books, bank_port != 0 ? &bank : nullptr, (folder / "settlements.jsonl").string());

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
    http.Get(R"(/ledger/(transfer|callback)/([\w.-]+))",
             route([&](auto& request, auto& response) { service.get_ledger(request, response); }));
    http.Get("/open",
             route([&](auto& /*request*/, auto& response) { service.get_open(response); }));

    const std::vector<std::jthread> behind = settle_behind(settling);
    server.serve(static_cast<std::size_t>(arguments.number_or("connections", 64)));
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "payment_service: " << problem.what() << '\n';
    return 1;
  }
}
