// Sends a payment service more than it deserves: every payment and transfer one to five times, in
// parallel, over connections that are sometimes closed before the reply is read, while the service is
// killed with SIGKILL and started again. Then it asks the bank and the ledger what really happened.
//
//   storm --service PROGRAM --bank PROGRAM --folder FOLDER --guard on|off --report FILE
//         [--store URL] [--payments N] [--transfers N] [--kills N] [--seed N] [--seconds N]

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <idempotency/execution.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "child_process.hpp"
#include "payment.hpp"
#include "storm_report.hpp"
#include "traffic.hpp"

namespace {

namespace idem = idempotency;
using nlohmann::json;
using shop::ChildProcess;
using shop::Order;
using shop::StormReport;
using shop::Traffic;
using namespace std::chrono_literals;

struct Settings {
  std::string service;
  std::string bank;
  std::filesystem::path folder;
  std::string guard;
  std::string report;
  std::string store;  ///< empty: the service's own choice
  std::string
      names;  ///< begins all ids, which a store outside the folder must not know from an earlier storm
  int payments;
  int transfers;
  int kills;
  unsigned seed;
  std::chrono::seconds limit;
};

Settings read_settings(int count, char** values) {
  const shop::Arguments arguments(count, values,
                                  {"service", "bank", "folder", "guard", "report", "store",
                                   "payments", "transfers", "kills", "seed", "seconds"});
  const std::string store = arguments.text_or("store", "");
  return {.service = arguments.text("service"),
          .bank = arguments.text("bank"),
          .folder = arguments.text("folder"),
          .guard = arguments.text("guard"),
          .report = arguments.text("report"),
          .store = store,
          .names = store.empty() ? "" : "storm-" + std::to_string(std::random_device{}()) + '-',
          .payments = arguments.number_or("payments", 3'000),
          .transfers = arguments.number_or("transfers", 1'000),
          .kills = arguments.number_or("kills", 5),
          .seed = static_cast<unsigned>(arguments.number_or("seed", 1)),
          .limit = std::chrono::seconds{arguments.number_or("seconds", 90)}};
}

/// Payments and transfers, mixed; the same for the same seed.
std::vector<Order> make_orders(const Settings& settings) {
  std::minstd_rand random{settings.seed};
  std::uniform_int_distribution<int> copies{1, 5};
  std::uniform_int_distribution<std::int64_t> cents{100, 50'000};
  std::uniform_int_distribution<int> percent{0, 99};
  std::vector<Order> orders;
  for (int number = 0; number < settings.payments; ++number) {
    shop::Payment payment{settings.names + "order-" + std::to_string(number), cents(random),
                          percent(random) < 2 ? "declined" : "4242-4242"};
    Order order{.id = payment.order_id,
                .path = "/payments",
                .body = json(payment).dump(),
                .copies = copies(random)};
    if (percent(random) < 2) {
      payment.cents += 1;
      order.misuse_body = json(payment).dump();
    }
    orders.push_back(std::move(order));
  }
  for (int number = 0; number < settings.transfers; ++number) {
    const shop::Transfer transfer{settings.names + "transfer-" + std::to_string(number), "alice",
                                  "bob", cents(random)};
    orders.push_back({.id = transfer.transfer_id,
                      .path = "/transfers",
                      .body = json(transfer).dump(),
                      .copies = copies(random)});
  }
  std::shuffle(orders.begin(), orders.end(), random);
  return orders;
}

json get(int port, const std::string& path) {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(10s);
  const httplib::Result answer = client.Get(path);
  if (!answer || answer->status != 200) throw std::runtime_error("no answer to GET " + path);
  return json::parse(answer->body);
}

/// The bank, the service under test, and what happens to it.
class Storm {
 public:
  explicit Storm(Settings settings)
      : settings_(std::move(settings)),
        bank_({settings_.bank, "--file", (settings_.folder / "charges").string()}),
        traffic_(make_orders(settings_), {.seed = settings_.seed}) {
    report_.guard = settings_.guard;
    report_.seed = settings_.seed;
  }

  StormReport run() {
    start_service();
    const std::int64_t copies = traffic_.counts().copies;
    for (int kill = 1; kill <= settings_.kills; ++kill) {
      if (!progress_to(copies * kill / (settings_.kills + 1))) break;
      kill_service();
      start_service();
    }
    progress_to(copies);
    wait_for_settlements();
    finish_report();
    service_->stop();
    bank_.stop();
    return report_;
  }

 private:
  void start_service() {
    std::vector<std::string> command{settings_.service,
                                     "--folder",
                                     settings_.folder.string(),
                                     "--bank-port",
                                     std::to_string(bank_.port()),
                                     "--guard",
                                     settings_.guard};
    if (!settings_.store.empty()) command.insert(command.end(), {"--store", settings_.store});
    service_ = std::make_unique<ChildProcess>(command);
    traffic_.set_port(service_->port());
  }

  void kill_service() {
    service_->kill_hard();
    traffic_.set_port(0);
    ++report_.kills;
    std::cout << "  SIGKILL " << report_.kills << " of " << settings_.kills
              << ": the service is dead and is started again" << std::endl;
  }

  /// Whether that many copies have their final reply before the time is up.
  bool progress_to(std::int64_t finished) {
    const Traffic::Clock::time_point end = started_ + settings_.limit;
    while (traffic_.wait(finished, std::min(end, Traffic::Clock::now() + 1s)) !=
           Traffic::Wait::finished) {
      show_progress();
      if (Traffic::Clock::now() >= end) return false;
    }
    return true;
  }

  void show_progress() const {
    const shop::TrafficCounts counts = traffic_.counts();
    std::cout << "  " << counts.requests << " requests sent, " << counts.dropped
              << " replies dropped, " << counts.finished << " of " << counts.copies
              << " clients have their answer" << std::endl;
  }

  /// Nothing is being worked on any more, so what is open now is to be settled by asking the bank.
  void wait_for_settlements() {
    const Traffic::Clock::time_point end = Traffic::Clock::now() + 15s;
    do {
      const json open = get(service_->port(), "/open");
      report_.bookings = open.at("bookings").get<std::string>();
      report_.left_open = open.at("records").get<std::int64_t>();
      if (report_.left_open == 0) return;
      std::this_thread::sleep_for(100ms);  // the service has no event to wait for
    } while (Traffic::Clock::now() < end);
  }

  void finish_report() {
    const std::vector<Order> orders = traffic_.take_orders();
    const shop::TrafficCounts counts = traffic_.counts();
    report_.requests = counts.requests;
    report_.replies_dropped = counts.dropped;
    report_.replayed = counts.replayed;
    std::cout << "  asking the bank and the ledger about each of " << orders.size() << " requests"
              << std::endl;
    for (const Order& order : orders) {
      if (order.replies_differ) ++report_.keys_differing;
      if (order.path == "/payments") {
        examine_payment(order);
      } else {
        examine_transfer(order);
      }
    }
    report_.charges = get(bank_.port(), "/stats").at("charges").get<std::int64_t>();
    count_settlements();
    report_.seconds =
        std::chrono::duration_cast<std::chrono::seconds>(Traffic::Clock::now() - started_).count();
  }

  void examine_payment(const Order& order) {
    const auto payment = json::parse(order.body).get<shop::Payment>();
    const std::string reference = idem::derived_key({"payment", order.id}, shop::charge_name);
    const json charges = get(bank_.port(), "/charges/" + reference);
    const auto ids = charges.at("charge_ids").get<std::vector<std::string>>();

    ++report_.payments;
    if (ids.size() > 1) {
      ++report_.payments_charged_twice;
      report_.cents_too_much += charges.at("cents").get<std::int64_t>() - payment.cents;
    }
    if (payment.card == "declined") {
      ++report_.payments_declined;
      if (order.final_status != 402 || !ids.empty()) ++report_.payments_lost;
    } else {
      const bool charged = order.final_status == 201 &&
                           std::find(ids.begin(), ids.end(),
                                     json::parse(order.final_body).at("charge_id")) != ids.end();
      if (!charged) ++report_.payments_lost;
    }
    if (!order.misuse_body.empty()) {
      ++report_.misuses;
      if (order.misuse_status == 422) ++report_.misuses_refused;
    }
  }

  void examine_transfer(const Order& order) {
    const auto rows =
        get(service_->port(), "/ledger/transfer/" + order.id).at("rows").get<std::int64_t>();
    ++report_.transfers;
    report_.ledger_rows += rows;
    if (rows > 1) ++report_.transfers_booked_twice;
    if (rows == 0 || order.final_status != 201) ++report_.transfers_lost;
  }

  void count_settlements() {
    std::ifstream journal(settings_.folder / "settlements.jsonl");
    for (std::string line; std::getline(journal, line);) {
      const json settlement = json::parse(line, nullptr, false);
      if (settlement.is_discarded()) continue;  // cut off by a SIGKILL
      if (settlement.at("type") != "payment") {
        ++report_.bookings_settled;
        continue;
      }
      ++(settlement.at("verdict") == "succeeded" ? report_.settled_as_succeeded
                                                 : report_.settled_as_retry);
    }
  }

  Settings settings_;
  Traffic::Clock::time_point started_ = Traffic::Clock::now();
  StormReport report_;
  ChildProcess bank_;
  std::unique_ptr<ChildProcess> service_;
  Traffic traffic_;  // last: its clients end first
};

}  // namespace

int main(int count, char** values) {
  std::signal(SIGPIPE, SIG_IGN);  // a killed service closes connections while requests are written
  try {
    const Settings settings = read_settings(count, values);
    std::cout << "Storm with the guard " << settings.guard << ": " << settings.payments
              << " payments and " << settings.transfers
              << " transfers, each sent 1 to 5 times; seed " << settings.seed << std::endl;
    const StormReport report = Storm(settings).run();
    std::ofstream(settings.report) << json(report).dump(2) << '\n';
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "storm: " << problem.what() << '\n';
    return 1;
  }
}
