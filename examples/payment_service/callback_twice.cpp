// The accident, on its own: a payment gateway delivers its callback twice in the same millisecond, and
// once more after the service was killed. With the guard the account is credited once; without, each time.
//
//   callback_twice --service PROGRAM --folder FOLDER [--store URL]

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
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

namespace {

using nlohmann::json;
using shop::ChildProcess;
using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

/// An open connection to the service.
std::unique_ptr<httplib::Client> connect(int port) {
  auto client = std::make_unique<httplib::Client>("127.0.0.1", port);
  client->set_keep_alive(true);
  client->set_tcp_nodelay(true);
  if (!client->Get("/open")) throw std::runtime_error("the service does not answer");
  return client;
}

struct Delivery {
  std::string reply;
  Clock::time_point sent;
};

/// Delivers the callback until the service has accepted it, as a gateway does.
Delivery deliver(httplib::Client& client, const std::string& event) {
  const std::string body = json(shop::Callback{event, "alice", 1'990}).dump();
  const Clock::time_point sent = Clock::now();
  for (int attempt = 0; attempt < 100; ++attempt) {
    const httplib::Result answer = client.Post("/callbacks", body, "application/json");
    if (answer && answer->status == 201) return {answer->body, sent};
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  throw std::runtime_error("the callback was never accepted");
}

struct Pair {
  std::string event;
  std::string one;
  std::string two;
  microseconds apart{0};
};

Pair deliver_twice_at_once(int port, const std::string& event) {
  const auto one = connect(port);
  const auto two = connect(port);
  std::atomic<int> ready{0};
  const auto deliver_together = [&](httplib::Client& client) {
    ++ready;
    while (ready < 2) {  // awake, because waking up may take longer than a millisecond
    }
    return deliver(client, event);
  };
  auto other = std::async(std::launch::async, [&] { return deliver_together(*two); });
  const Delivery first = deliver_together(*one);
  const Delivery second = other.get();
  return {event, first.reply, second.reply,
          std::chrono::duration_cast<microseconds>(std::chrono::abs(first.sent - second.sent))};
}

/// A busy machine may need several events until one is delivered twice within a millisecond.
Pair deliver_twice_in_a_millisecond(int port) {
  constexpr int most_events = 20;
  // The store may remember earlier runs.
  const std::string name = "event-" + std::to_string(std::random_device{}()) + '-';
  Pair pair;
  for (int number = 1; number <= most_events; ++number) {
    pair = deliver_twice_at_once(port, name + std::to_string(number));
    if (pair.apart < std::chrono::milliseconds{1}) break;
  }
  return pair;
}

std::int64_t rows_in_ledger(httplib::Client& client, const std::string& event) {
  const httplib::Result answer = client.Get("/ledger/callback/" + event);
  if (!answer) throw std::runtime_error("the ledger does not answer");
  return json::parse(answer->body).at("rows").get<std::int64_t>();
}

struct Outcome {
  std::int64_t rows = 0;
  bool same_replies = true;
};

std::string mode_of_bookings(httplib::Client& client) {
  const httplib::Result answer = client.Get("/open");
  if (!answer) throw std::runtime_error("the service does not answer");
  return json::parse(answer->body).at("bookings").get<std::string>();
}

Outcome play(const std::string& service, const std::filesystem::path& folder,
             const std::string& store, const std::string& guard) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> command{service, "--folder", folder.string(), "--guard", guard};
  if (!store.empty()) command.insert(command.end(), {"--store", store});

  auto process = std::make_unique<ChildProcess>(command);
  const Pair pair = deliver_twice_in_a_millisecond(process->port());
  std::cout << "\n  guard " << guard;
  if (guard == "on") std::cout << ", mode " << mode_of_bookings(*connect(process->port()));
  std::cout << "\n    delivered twice, " << pair.apart.count() << " us apart\n      " << pair.one
            << "\n      " << pair.two << std::endl;

  process->kill_hard();
  process = std::make_unique<ChildProcess>(command);
  const auto client = connect(process->port());
  const std::string third = deliver(*client, pair.event).reply;
  std::cout << "    service killed with SIGKILL and started again, delivered once more\n      "
            << third << std::endl;

  const Outcome outcome{rows_in_ledger(*client, pair.event),
                        pair.one == pair.two && pair.one == third};
  std::cout << "    alice was credited " << outcome.rows << (outcome.rows == 1 ? " time" : " times")
            << std::endl;
  return outcome;
}

}  // namespace

int main(int count, char** values) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const shop::Arguments arguments(count, values, {"service", "folder", "store"});
    const std::string service = arguments.text("service");
    const std::filesystem::path folder = arguments.text("folder");
    const std::string store = arguments.text_or("store", "");
    std::cout << "A payment callback delivered twice" << std::endl;
    const Outcome with = play(service, folder / "with", store, "on");
    const Outcome without = play(service, folder / "without", store, "off");

    const bool kept = with.rows == 1 && with.same_replies;
    const bool shown = without.rows > 1;
    if (!kept)
      std::cout
          << "BROKEN: with the guard the callback counts once, and all replies are the same\n";
    if (!shown) std::cout << "BROKEN: without the guard the callback counts more than once\n";
    return kept && shown ? 0 : 1;
  } catch (const std::exception& problem) {
    std::cerr << "callback_twice: " << problem.what() << '\n';
    return 1;
  }
}
