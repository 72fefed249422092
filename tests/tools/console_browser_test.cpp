// The console as people meet it: in a browser, by the keyboard. What is done there is in console_browser.mjs.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/redis.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/manual_clock.hpp"
#include "support/client_program.hpp"
#include "support/local_http_server.hpp"
#include "support/redis_server.hpp"
#include "support/temporary_directory.hpp"
#include "tools/audit_lines.hpp"
#include "tools/console_process.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing_support::audit_lines;
using testing_support::ChildProcess;
using testing_support::ConsoleProcess;
using testing_support::LocalHttpServer;
using testing_support::RedisServer;
using testing_support::TemporaryDirectory;

const std::string with_token = std::string("IDEMPOTENCY_CONSOLE_TOKEN=") + ConsoleProcess::token;

class ConsoleBrowser : public testing_support::ClientProgramTest {
 protected:
  ConsoleBrowser() : ClientProgramTest("chromium"), clock_(system_clock().now() - 3h) {}

  void SetUp() override {
    ClientProgramTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const char* required = std::getenv("IDEMPOTENCY_REQUIRE_SERVERS");
    if (!testing_support::program_path("node").empty()) return;
    if (required != nullptr && std::string(required) == "1") FAIL() << "node is not installed";
    GTEST_SKIP() << "node IS NOT INSTALLED: the console is not looked at here";
  }

  std::string address() const { return "sqlite:" + folder_.file("records.db"); }
  std::string audit_file() const { return folder_.file("audit.jsonl"); }
  /// Where the pictures go: where somebody wants to look at them, or where they vanish.
  std::string pictures() const {
    const char* wanted = std::getenv("IDEMPOTENCY_CONSOLE_PICTURES");
    return wanted == nullptr ? folder_.path().string() : wanted;
  }
  ChildProcess browse(const ConsoleProcess& console, const std::string& scenario,
                      const std::string& token = ConsoleProcess::token) const {
    return ChildProcess::start({testing_support::program_path("node"), CONSOLE_BROWSER_SCRIPT,
                                testing_support::program_path("chromium"), console.url() + "/",
                                scenario, pictures(), token},
                               {"HOME=" + folder_.path().string()});
  }
  static void expect_good_end(ChildProcess& browser) {
    std::string text;
    for (const std::string& line : browser.remaining_lines())
      text += line + '\n';
    EXPECT_EQ(browser.wait().exit_code, 0) << text;
  }
  ConsoleProcess start(std::vector<std::string> words = {}) const {
    words.insert(words.end(), {"--audit-file", audit_file(), "--who", "operator", "--every", "1s"});
    return ConsoleProcess(address(), words, {with_token});
  }

  Ownership begin(const Key& key, RecordMode mode, std::chrono::milliseconds lease,
                  const std::string& trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-01") {
    const BeginRequest request{
        .key = key, .owner = OwnerToken::generate(), .mode = mode, .lease = lease, .trace = trace};
    return {request.owner, std::get<Acquired>(store_.begin(request)).fence};
  }
  void leave_uncertain(const Key& key, const std::string& trace = "request-7") {
    EXPECT_EQ(store_.doubt(key, begin(key, RecordMode::hold, 30s, trace)), WriteOutcome::stored);
  }
  void finish(const Key& key) {
    EXPECT_EQ(guard_
                  .run({.key = key, .policy = {.success_retention = 720h}},
                       [] { return std::string("receipt-1"); })
                  .status(),
              RunStatus::executed);
  }
  /// What an evening leaves behind, up to now.
  void fill() {
    finish({"payment", "order-done"});
    leave_uncertain({"payment", "order-7"});
    clock_.advance(80min);
    leave_uncertain({"payment", "order-8/with a rather long name, as other systems make them"});
    static_cast<void>(begin({"payment", "order-silent"}, RecordMode::hold, 30s));
    static_cast<void>(begin({"report", "2026-11"}, RecordMode::take_over, 30s));
    for (int number = 0; number < 30; ++number)
      finish({"order", std::to_string(number)});
    clock_.advance(90min);
    static_cast<void>(begin({"report", "2026-12"}, RecordMode::take_over, 2h));
    static_cast<void>(begin({"payment", "order-9"}, RecordMode::hold, 2h));
    clock_.set(system_clock().now());
    leave_uncertain({"payment", "order-new"});
  }
  RecordState state_of(const Key& key) { return store_.find(key)->state; }
  void settle(const Key& key) {
    static_cast<void>(store_.resolve(
        *store_.find(key), {.verdict = Resolution::Verdict::succeeded, .result = std::nullopt}));
  }

  TemporaryDirectory folder_;
  testing::ManualClock clock_;
  SqliteStore store_{{.path = folder_.file("records.db"), .clock = &clock_}};
  IdempotencyGuard<SqliteStore> guard_{store_};
};

TEST_F(ConsoleBrowser, SettlesARecordByTheKeyboard) {
  fill();
  const ConsoleProcess console = start();

  ChildProcess browser = browse(console, "settle");
  expect_good_end(browser);

  ASSERT_EQ(state_of({"payment", "order-7"}), RecordState::failed);
  EXPECT_EQ(store_.find({"payment", "order-7"})->failure->reason, "refused by the bank");
  const std::vector<json> lines = audit_lines(audit_file());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].at("who"), "alice");
  EXPECT_EQ(lines[1].at("why"), "ticket 4711");
  EXPECT_EQ(lines[1].at("outcome"), "changed");
}

TEST_F(ConsoleBrowser, ShowsTheRecordAsItIsNowWhenItHasChanged) {
  fill();
  const ConsoleProcess console = start();

  ChildProcess browser = browse(console, "changed");
  EXPECT_EQ(browser.next_line(), "settle order-7");
  settle({"payment", "order-7"});
  browser.send(SIGUSR2);
  expect_good_end(browser);

  EXPECT_EQ(state_of({"payment", "order-7"}), RecordState::success);
}

TEST_F(ConsoleBrowser, AsksAgainForATokenThatIsWrong) {
  fill();
  const ConsoleProcess console = start();

  ChildProcess browser = browse(console, "wrong_token", "this-is-not-the-token");
  expect_good_end(browser);

  EXPECT_EQ(state_of({"payment", "order-7"}), RecordState::uncertain);
}

TEST_F(ConsoleBrowser, WarnsOfARetryThatComesTooEarly) {
  fill();
  const ConsoleProcess console = start();

  ChildProcess browser = browse(console, "early_retry");
  expect_good_end(browser);

  EXPECT_EQ(state_of({"payment", "order-new"}), RecordState::failed);
  EXPECT_EQ(audit_lines(audit_file()).at(0).at("command"), "resolve --force");
}

TEST_F(ConsoleBrowser, ShowsStrangeKeysAsText) {
  leave_uncertain({"payment", "<img src=x onerror=alert(1)>"},
                  "<script>alert(2)</script>\xe2\x80\xae"
                  "desrever");
  leave_uncertain({"payment", "\xff\xfe not UTF-8"});
  const ConsoleProcess console = start();

  ChildProcess browser = browse(console, "strange_keys");
  expect_good_end(browser);
}

TEST_F(ConsoleBrowser, HasNothingThatSettlesWithoutAToken) {
  fill();
  const ConsoleProcess console(address());

  ChildProcess browser = browse(console, "read_only");
  expect_good_end(browser);
}

TEST_F(ConsoleBrowser, CanBeReadAtEverySizeInTheLightAndInTheDark) {
  fill();
  std::atomic<int> readings{0};
  LocalHttpServer service;
  service.http().Get("/metrics", [&](const httplib::Request&, httplib::Response& response) {
    const int at = ++readings;
    const auto line = [](const char* outcome, int count) {
      return std::string("idempotency_runs_total{outcome=\"") + outcome + "\",type=\"payment\"} " +
             std::to_string(count) + '\n';
    };
    response.status = at % 17 == 0 ? 503 : 200;  // and sometimes it is away
    response.set_content(line("executed", at * 9) + line("replayed", at * 3 + at % 5 * 2) +
                             line("in_progress", at / 4),
                         "text/plain");
  });
  service.start();
  const ConsoleProcess console =
      start({"--metrics", "http://127.0.0.1:" + std::to_string(service.port())});
  console.await("/api/duplicates", [](const json& a) { return a.at("points").size() > 45; });

  ChildProcess browser = browse(console, "views");
  expect_good_end(browser);
}

TEST_F(ConsoleBrowser, LeavesFocusAndScrollAloneWhenItRefreshes) {
  fill();
  for (int number = 0; number < 40; ++number) {
    leave_uncertain({"payment", "another-" + std::to_string(number)});
  }
  const ConsoleProcess console = start();

  ChildProcess browser = browse(console, "refresh");
  EXPECT_EQ(browser.next_line(), "settle order-7");
  settle({"payment", "order-7"});
  expect_good_end(browser);
}

TEST_F(ConsoleBrowser, AsksForTheTokenWhereReadingNeedsIt) {
  fill();
  const ConsoleProcess console = start({"--listen", "0.0.0.0:0", "--insecure"});

  ChildProcess browser = browse(console, "login");
  expect_good_end(browser);
}

TEST_F(ConsoleBrowser, SaysThatTheStoreIsAwayAndGoesOnWhenItIsBack) {
  RedisServer server(RedisServer::durable());
  RedisStore store{server.options()};
  static_cast<void>(store.begin({.key = {"payment", "1"},
                                 .owner = OwnerToken::generate(),
                                 .mode = RecordMode::hold,
                                 .lease = 1ms}));
  const ConsoleProcess console(server.address());

  ChildProcess browser = browse(console, "away");
  EXPECT_EQ(browser.next_line(), "away");
  server.stop();
  EXPECT_EQ(browser.next_line(), "back");
  server.start();
  expect_good_end(browser);
}

}  // namespace
}  // namespace idempotency
