// The bank: a process of its own that really counts the charges it was asked for. It does not
// deduplicate: asked twice with the same reference, it charges twice. It can say what it did.
//
//   POST /charges {"reference", "cents", "card", "valid_until"}
//                                  201 {"charge_id"}, 402 when it declines, 408 when it is too late
//   GET  /charges/<reference>      200 {"count", "charge_ids", "cents"}
//   GET  /stats                    200 {"charges", "references", "cents"}
//
//   bank --file FILE [--latency-ms N] [--connections N]

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "loopback_server.hpp"

namespace {

using nlohmann::json;

std::int64_t now_in_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// All charges, in a file that is on the disk before a charge is confirmed.
class Book {
 public:
  struct Charges {
    std::vector<std::string> ids;
    std::int64_t cents = 0;
  };

  explicit Book(const std::string& path) {
    std::ifstream earlier(path);
    for (std::string line; std::getline(earlier, line);) {
      std::istringstream fields(line);
      std::string id;
      std::string reference;
      std::int64_t cents = 0;
      std::int64_t time = 0;
      if (fields >> id >> reference >> cents >> time) count(id, reference, cents);
    }
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), path);
  }
  Book(const Book&) = delete;
  Book& operator=(const Book&) = delete;
  ~Book() { ::close(file_); }

  /// Charges and gives the charge's id; nothing when `valid_until` has passed.
  std::optional<std::string> charge(const std::string& reference, std::int64_t cents,
                                    std::int64_t valid_until) {
    const std::lock_guard lock(mutex_);
    const std::int64_t now = now_in_milliseconds();
    if (now > valid_until) return std::nullopt;
    const std::string id = "ch-" + std::to_string(charges_ + 1);
    const std::string line =
        id + ' ' + reference + ' ' + std::to_string(cents) + ' ' + std::to_string(now) + '\n';
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
        ::fsync(file_) != 0) {
      std::cerr << "bank: the book cannot be written" << std::endl;
      std::abort();  // whether the charge counts is not known: better no bank than a wrong one
    }
    count(id, reference, cents);
    return id;
  }

  [[nodiscard]] Charges find(const std::string& reference) const {
    const std::lock_guard lock(mutex_);
    const auto found = by_reference_.find(reference);
    return found == by_reference_.end() ? Charges{} : found->second;
  }

  [[nodiscard]] json statistics() const {
    const std::lock_guard lock(mutex_);
    return {{"charges", charges_}, {"references", by_reference_.size()}, {"cents", cents_}};
  }

 private:
  void count(const std::string& id, const std::string& reference, std::int64_t cents) {
    Charges& charges = by_reference_[reference];
    charges.ids.push_back(id);
    charges.cents += cents;
    cents_ += cents;
    ++charges_;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Charges> by_reference_;
  std::int64_t cents_ = 0;
  std::int64_t charges_ = 0;
  int file_ = -1;
};

/// What a card network takes: up to `most` milliseconds.
void take_time(int most) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const int milliseconds = std::uniform_int_distribution<int>{0, most}(random);
  std::this_thread::sleep_for(std::chrono::milliseconds{milliseconds});
}

void reply(httplib::Response& response, int status, const json& body) {
  response.status = status;
  response.set_content(body.dump(), "application/json");
}

void add_routes(httplib::Server& http, Book& book, int latency) {
  http.Post("/charges",
            [&book, latency](const httplib::Request& request, httplib::Response& response) {
              const json body = json::parse(request.body);
              take_time(latency);
              if (body.at("card") == "declined") {
                return reply(response, 402, {{"reason", "the bank declines the card"}});
              }
              const std::optional<std::string> id = book.charge(
                  body.at("reference").get<std::string>(), body.at("cents").get<std::int64_t>(),
                  body.at("valid_until").get<std::int64_t>());
              take_time(latency);
              if (!id) return reply(response, 408, {{"reason", "the request came too late"}});
              reply(response, 201, {{"charge_id", *id}});
            });
  http.Get(R"(/charges/([\w.-]+))", [&book](const httplib::Request& request,
                                            httplib::Response& response) {
    const Book::Charges charges = book.find(request.matches[1].str());
    reply(response, 200,
          {{"count", charges.ids.size()}, {"charge_ids", charges.ids}, {"cents", charges.cents}});
  });
  http.Get("/stats", [&book](const httplib::Request& /*request*/, httplib::Response& response) {
    reply(response, 200, book.statistics());
  });
}

}  // namespace

int main(int count, char** values) {
  try {
    shop::LoopbackServer server;
    const shop::Arguments arguments(count, values, {"file", "latency-ms", "connections"});
    Book book(arguments.text("file"));
    add_routes(server.http(), book, arguments.number_or("latency-ms", 5));
    server.serve(static_cast<std::size_t>(arguments.number_or("connections", 64)));
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "bank: " << problem.what() << '\n';
    return 1;
  }
}
