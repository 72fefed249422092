// Clients that nobody here wrote, with their own retries, behind a network that loses requests and replies.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "idempotency/edges/httplib.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "support/client_program.hpp"
#include "support/fault_proxy.hpp"
#include "support/local_http_server.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency {
namespace {

using testing::Fault;
using testing::FaultyStore;
using testing_support::ClientProgramTest;
using testing_support::FaultProxy;
using testing_support::LocalHttpServer;
using testing_support::NetworkFault;
using testing_support::TemporaryDirectory;

/// A bank account's server; `effects` has how often each payment took effect.
class Bank {
 public:
  Bank() {
    server_.http().Post(
        "/pay", idempotent_handler(
                    http_, {.principal = [](const httplib::Request&) { return "alice"; }},
                    [this](const httplib::Request& request, httplib::Response& response) {
                      const std::scoped_lock lock(mutex_);
                      if (busy_ > 0) {
                        --busy_;
                        response.status = 503;
                        return;
                      }
                      response.status = 201;
                      const int count = ++effects_[request.body];
                      response.set_header("Location", "/payments/" + request.body);
                      response.set_content("effect " + std::to_string(count) + '\n', "text/plain");
                    }));
    server_.start();
  }

  /// The next `count` requests fail without effect.
  void be_busy(int count) {
    const std::scoped_lock lock(mutex_);
    busy_ = count;
  }
  [[nodiscard]] std::map<std::string, int> effects() {
    const std::scoped_lock lock(mutex_);
    return effects_;
  }
  [[nodiscard]] FaultyStore<SqliteStore>& store() noexcept { return store_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return server_.port(); }

 private:
  TemporaryDirectory folder_;
  SqliteStore file_{{.path = folder_.file("records.db")}};
  FaultyStore<SqliteStore> store_{file_};
  IdempotencyGuard<FaultyStore<SqliteStore>> guard_{store_};
  HttpIdempotency<IdempotencyGuard<FaultyStore<SqliteStore>>> http_{guard_};
  std::mutex mutex_;
  std::map<std::string, int> effects_;
  int busy_ = 0;
  LocalHttpServer server_;
};

using Effects = std::map<std::string, int>;

class Curl : public ClientProgramTest {
 protected:
  Curl() : ClientProgramTest("curl") {}

  /// The head and body of the last answer.
  std::string pay(std::uint16_t port, const std::vector<std::string>& options) {
    std::vector<std::string> arguments{"--silent", "--show-error", "--include"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    for (const char* word : {"--header", "Idempotency-Key: \"7f3d\"", "--header",
                             "Content-Type: text/plain", "--data", "7"}) {
      arguments.emplace_back(word);
    }
    arguments.push_back("http://127.0.0.1:" + std::to_string(port) + "/pay");
    std::string answer;
    for (const std::string& line : output_of(std::move(arguments)))
      answer += line + '\n';
    return answer.substr(answer.rfind("HTTP/1.1 "));
  }

  Bank bank;
  FaultProxy proxy{bank.port()};
};

TEST_F(Curl, RepeatsARequestWhoseReplyWasLostAndGetsTheFirstAnswer) {
  proxy.harm_next(NetworkFault::cut_before_reply);

  const std::string answer = pay(proxy.port(), {"--retry", "3", "--retry-all-errors"});

  EXPECT_TRUE(answer.starts_with("HTTP/1.1 201 ")) << answer;
  EXPECT_NE(answer.find("Idempotent-Replayed: true\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Location: /payments/7\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("\neffect 1"), std::string::npos) << answer;
  EXPECT_EQ(bank.effects(), (Effects{{"7", 1}}));
  EXPECT_EQ(proxy.requests(), 2U);
}

TEST_F(Curl, RepeatsARequestThatFailedForNow) {
  bank.be_busy(1);

  const std::string answer = pay(proxy.port(), {"--retry", "3"});

  EXPECT_TRUE(answer.starts_with("HTTP/1.1 201 ")) << answer;
  EXPECT_EQ(answer.find("Idempotent-Replayed"), std::string::npos) << answer;
  EXPECT_EQ(bank.effects(), (Effects{{"7", 1}}));
}

TEST_F(Curl, RepeatsARequestThatMetAStoreThatWasDown) {
  bank.store()
      .on(StoreCall::begin)
      .fail_next(3, Fault::request_lost);  // all of one call's attempts

  const std::string answer = pay(proxy.port(), {"--retry", "3"});

  EXPECT_TRUE(answer.starts_with("HTTP/1.1 201 ")) << answer;
  EXPECT_EQ(bank.effects(), (Effects{{"7", 1}}));
  EXPECT_EQ(proxy.requests(), 2U);
}

/// Node's own client does not repeat a POST; got does.
class Node : public ClientProgramTest {
 protected:
  Node() : ClientProgramTest("node") {
    ::setenv("NODE_PATH", "/usr/share/nodejs:/usr/lib/nodejs",
             1);  // Debian's Node looks there anyway
  }
};

TEST_F(Node, PaysOnceEachHoweverOftenItHasToRepeatItself) {
  Bank bank;
  bank.be_busy(4);
  FaultProxy proxy(bank.port());
  proxy.plan([](std::uint64_t number) {
    constexpr std::uint64_t harmed_until = 60;
    if (number >= harmed_until) return NetworkFault::none;
    if (number % 4 == 1) return NetworkFault::cut_before_reply;
    if (number % 4 == 2) return NetworkFault::cut_before_request;
    return number % 4 == 3 ? NetworkFault::reset_before_reply : NetworkFault::none;
  });

  const std::vector<std::string> lines =
      output_of({IDEMPOTENCY_HTTP_CLIENT, std::to_string(proxy.port()), "24"});

  ASSERT_EQ(lines.size(), 24U);
  Effects expected;
  int replayed = 0;
  int repeated = 0;
  for (const std::string& line : lines) {
    const auto payment = nlohmann::json::parse(line);
    EXPECT_EQ(payment.at("status"), 201) << line;
    EXPECT_EQ(payment.at("body"), "effect 1\n") << line;
    replayed += payment.at("replayed").get<bool>() ? 1 : 0;
    repeated += payment.at("attempt").get<int>() > 1 ? 1 : 0;
    expected[payment.at("payment")] = 1;
  }
  EXPECT_EQ(bank.effects(), expected);
  EXPECT_EQ(expected.size(), 24U);
  EXPECT_GT(replayed, 0);
  EXPECT_GT(repeated, 0);
  EXPECT_GT(proxy.harmed(), 20U);
}

/// As load: two threads that ask for the same payments, each of them twice.
class Wrk : public ClientProgramTest {
 protected:
  Wrk() : ClientProgramTest("wrk") {
    std::ofstream(script_) << R"lua(
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(arguments) asked = 0; first = 0; again = 0; running = 0; other = 0 end
function request()
  local payment = math.floor(asked / 2)
  asked = asked + 1
  return wrk.format("POST", nil, {["Idempotency-Key"] = '"k' .. payment .. '"'}, tostring(payment))
end
function response(status, headers, body)
  if status == 409 then running = running + 1
  elseif status ~= 201 or body ~= "effect 1\n" then other = other + 1
  elseif headers["Idempotent-Replayed"] == "true" then again = again + 1
  else first = first + 1 end
end
function done(summary, latency, requests)
  for _, name in ipairs({"first", "again", "running", "other"}) do
    local sum = 0
    for _, thread in ipairs(threads) do sum = sum + thread:get(name) end
    print(name .. "=" .. sum)
  end
  local errors = summary.errors
  print("broken=" .. errors.connect + errors.read + errors.write + errors.timeout)
end
)lua";
  }

  TemporaryDirectory folder_;
  std::string script_ = folder_.file("pay.lua");
};

TEST_F(Wrk, FindsEachPaymentOnceHoweverOftenItIsAskedForAtOnce) {
  Bank bank;

  const std::vector<std::string> lines =
      output_of({"--threads", "2", "--connections", "8", "--duration", "2s", "--script", script_,
                 "http://127.0.0.1:" + std::to_string(bank.port()) + "/pay"});

  std::map<std::string, int> counts;
  for (const std::string& line : lines) {
    const std::size_t mark = line.find('=');
    if (mark != std::string::npos) counts[line.substr(0, mark)] = std::stoi(line.substr(mark + 1));
  }
  const Effects effects = bank.effects();
  for (const auto& [payment, count] : effects)
    EXPECT_EQ(count, 1) << payment;
  EXPECT_EQ(counts["other"], 0);
  EXPECT_EQ(counts["broken"], 0);
  EXPECT_GT(counts["first"], 0);
  EXPECT_GT(counts["again"] + counts["running"], 0);
  // What was under way at the end took effect and was not heard of.
  EXPECT_GE(effects.size(), static_cast<std::size_t>(counts["first"]));
  EXPECT_LE(effects.size(), static_cast<std::size_t>(counts["first"]) + 8);
}

}  // namespace
}  // namespace idempotency
