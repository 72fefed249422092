// The console in the browser, as programs and other sites' pages meet it; console_browser_test.cpp looks at it as people do.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/open.hpp"
#include "support/child_process.hpp"
#include "support/local_http_server.hpp"
#include "support/real_store.hpp"
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
using testing_support::ProcessEnd;
using testing_support::RedisServer;
using testing_support::TemporaryDirectory;

const std::string with_token = std::string("IDEMPOTENCY_CONSOLE_TOKEN=") + ConsoleProcess::token;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(byte) >> 4U];
    text += digits[static_cast<unsigned char>(byte) & 15U];
  }
  return text;
}
std::string path_of(const Key& key) { return "/api/record?id=" + hex(key.text()); }

/// What the program says and how it ends, when it does not start to serve.
std::pair<std::string, int> refused(std::vector<std::string> words,
                                    const std::vector<std::string>& environment = {}) {
  words.insert(words.begin(), {IDEMPOTENCYCTL, "serve"});
  ChildProcess process = ChildProcess::start(words, environment);
  std::string text;
  for (const std::string& line : process.remaining_lines())
    text += line + '\n';
  return {text, process.wait().exit_code};
}

enum class Kind { sqlite, redis };

/// A store with records, and a console beside it.
class Console : public ::testing::TestWithParam<Kind> {
 protected:
  Console() : store_(open_store(address())) {
    if (GetParam() == Kind::redis) RedisServer::shared().text({"FLUSHALL"});
  }

  std::string address() const {
    if (GetParam() == Kind::sqlite) return "sqlite:" + folder_.file("records.db");
    return RedisServer::shared().address();
  }
  std::string audit_file() const { return folder_.file("audit.jsonl"); }
  ConsoleProcess start(std::vector<std::string> words = {}) const {
    words.insert(words.end(), {"--audit-file", audit_file(), "--who", "operator"});
    return ConsoleProcess(address(), words, {with_token});
  }
  Ownership begin(const Key& key, RecordMode mode = RecordMode::hold,
                  std::chrono::milliseconds lease = 1h) {
    const BeginRequest request{.key = key,
                               .owner = OwnerToken::generate(),
                               .mode = mode,
                               .lease = lease,
                               .trace = "request-7"};
    return {request.owner, std::get<Acquired>(store_.begin(request)).fence};
  }
  Key leave_uncertain(const std::string& value) {
    const Key key("payment", value);
    EXPECT_EQ(store_.doubt(key, begin(key)), WriteOutcome::stored);
    return key;
  }
  json body(const ConsoleProcess& console, const Key& key, const char* verdict) {
    const json seen = console.json(path_of(key)).at("record");
    return {{"id", seen.at("id")},
            {"version", seen.at("version")},
            {"verdict", verdict},
            {"reason", "the bank says so"},
            {"who", "alice"}};
  }
  void spoil(const Key& key) const {
    if (GetParam() == Kind::redis) {
      testing_support::spoil_in_redis(RedisServer::shared(), key);
    } else {
      testing_support::spoil_in_sqlite(folder_.file("records.db"), key);
    }
  }
  RecordState state_of(const Key& key) { return store_.find(key)->state; }

  TemporaryDirectory folder_;
  AnyStore store_;
  IdempotencyGuard<AnyStore> guard_{store_};
};

TEST_P(Console, SaysWhatRunsAndWhatIsStuckAndSinceWhen) {
  leave_uncertain("1");
  static_cast<void>(begin({"payment", "running"}));
  static_cast<void>(begin({"payment", "silent"}, RecordMode::hold, 1ms));
  static_cast<void>(begin({"report", "abandoned"}, RecordMode::take_over, 1ms));
  static_cast<void>(begin({"reconcile", "its own"}));
  static_cast<void>(guard_.run({.key = {"order", "done"}}, [] { return 1; }));
  const ConsoleProcess console = start();

  const json now = console.await("/api/overview", [](const json& answer) {
    return answer.contains("unfinished") && answer.at("unfinished").at("silent") == 1 &&
           answer.at("unfinished").at("abandoned") == 1;
  });

  EXPECT_EQ(now.at("unfinished"),
            json({{"running", 1}, {"uncertain", 1}, {"silent", 1}, {"abandoned", 1}}));
  EXPECT_EQ(now.at("by_type").at("report").at("abandoned"), 1);
  EXPECT_EQ(now.at("reconciling"), 1);
  EXPECT_EQ(now.at("counts").at("success"), 1);
  EXPECT_TRUE(now.at("stuck_since").is_string());
  EXPECT_TRUE(now.at("settles"));
  EXPECT_EQ(now.at("problem"), "");
  const json stuck = console.json("/api/records?state=stuck").at("records");
  ASSERT_EQ(stuck.size(), 3U);
  EXPECT_EQ(stuck.at(2).at("situation"), "abandoned") << "who needs somebody comes first";
  EXPECT_EQ(console.json("/api/records?state=running").at("records").at(0).at("value"), "running");
}

TEST_P(Console, NamesWhatCannotBeReadAndShowsTheRest) {
  leave_uncertain("good");
  const Key bad = leave_uncertain("bad");
  spoil(bad);
  const ConsoleProcess console = start();
  console.await_look();

  for (const char* state : {"stuck", "uncertain"}) {
    const json listed = console.json(std::string("/api/records?state=") + state);

    EXPECT_EQ(listed.at("records").size(), 1U) << state;
    ASSERT_EQ(listed.at("unreadable").size(), 1U) << state;
    EXPECT_EQ(listed.at("unreadable").at(0).at("key"), bad.text()) << state;
  }
}

TEST_P(Console, ListsByStateTypeAndAgePageByPage) {
  for (const char* value : {"a", "b", "c"})
    leave_uncertain(value);
  static_cast<void>(begin({"report", "d"}));
  const ConsoleProcess console = start();
  console.await_look();
  const auto list = [&](const std::string& query) { return console.json("/api/records?" + query); };

  for (const char* state : {"stuck", "uncertain"}) {
    const std::string query = std::string("state=") + state + "&limit=2";
    const json first = list(query);
    const json rest = list(query + "&after=" + first.at("cursor").get<std::string>());

    EXPECT_EQ(first.at("records").size(), 2U) << state;
    ASSERT_EQ(rest.at("records").size(), 1U) << state;
    EXPECT_EQ(rest.at("cursor"), "") << state;
    EXPECT_EQ(list("state=" + std::string(state) + "&type=report").at("records").size(), 0U);
    EXPECT_EQ(list("state=" + std::string(state) + "&older_than=1h").at("records").size(), 0U);
  }
  EXPECT_EQ(list("").at("records").size(), 4U);
  EXPECT_EQ(list("type=report").at("records").at(0).at("value"), "d");
}

TEST_P(Console, ShowsARecordWithoutTheContentOfItsResult) {
  const Key key("order", "1");
  static_cast<void>(guard_.run({.key = key}, [] { return std::string("a secret"); }));
  const ConsoleProcess discreet = start();
  const ConsoleProcess open = start({"--show-results"});
  const std::string bearer = std::string("Bearer ") + ConsoleProcess::token;
  open.await_look();
  discreet.await_look();

  const json record = open.json(path_of(key)).at("record");
  const httplib::Result shown = open.get(path_of(key) + "&result=yes", {{"Authorization", bearer}});
  const httplib::Result withheld =
      discreet.get(path_of(key) + "&result=yes", {{"Authorization", bearer}});

  EXPECT_EQ(record.at("state"), "success");
  EXPECT_EQ(record.at("result").at("codec"), "text");
  EXPECT_FALSE(record.at("result").contains("text"));
  EXPECT_EQ(json::parse(shown->body).at("record").at("result").at("text"), "a secret");
  EXPECT_EQ(open.get(path_of(key) + "&result=yes")->status, 401) << "with the token only";
  EXPECT_EQ(withheld->status, 403);
  EXPECT_EQ(withheld->body.find("secret"), std::string::npos);
}

TEST_P(Console, ShowsOnlyResultsThatCanBeRead) {
  static_cast<void>(guard_.run({.key = {"r", "binary"}}, [] { return std::string("\0\1", 2); }));
  static_cast<void>(guard_.run({.key = {"r", "large"}}, [] { return std::string(70'000, 'x'); }));
  static_cast<void>(guard_.run({.key = {"r", "pair"}}, [] { return std::pair(1, 2); }));
  static_cast<void>(guard_.run({.key = {"r", "number"}}, [] { return -7; }));
  static_cast<void>(guard_.run({.key = {"r", "nothing"}}, [] {}));
  const ConsoleProcess console(address(), {"--show-results"});
  console.await_look();
  const auto result = [&](const char* value) {
    return console.json(path_of({"r", value}) + "&result=yes").at("record").at("result");
  };

  EXPECT_TRUE(result("binary").contains("why_not"));
  EXPECT_TRUE(result("large").contains("why_not"));
  EXPECT_TRUE(result("pair").contains("why_not"));
  EXPECT_EQ(result("number").at("text"), "-7");
  EXPECT_EQ(result("nothing").at("codec"), "nothing");
}

TEST_P(Console, SettlesWithEveryAnswerAndWritesItDown) {
  const ConsoleProcess console = start();
  const Key done = leave_uncertain("done");
  const Key failed = leave_uncertain("failed");
  const Key hangs("report", "hangs");
  static_cast<void>(begin(hangs, RecordMode::take_over));
  console.await_look();

  json as_done = body(console, done, "success");
  as_done["result_text"] = "receipt 1";
  json as_failed = body(console, failed, "failed");
  as_failed["text"] = "refused";
  const json answer = console.settle(as_done);
  static_cast<void>(console.settle(as_failed));
  EXPECT_EQ(console.settle(body(console, hangs, "release"), 409).at("code"), "refused")
      << "its lease runs";
  json as_released = body(console, hangs, "release");
  as_released["force"] = true;
  static_cast<void>(console.settle(as_released));

  EXPECT_EQ(answer.at("record").at("state"), "success");
  const auto pay = [&](const Key& key) {
    return guard_.run({.key = key}, [] { return std::string("new"); });
  };
  EXPECT_EQ(pay(done).value(), "receipt 1");
  EXPECT_EQ(pay(failed).failure(), "refused");
  EXPECT_EQ(pay(hangs).status(), RunStatus::executed);
  const std::vector<json> lines = audit_lines(audit_file());
  ASSERT_EQ(lines.size(), 6U) << "one before each change, one behind it";
  EXPECT_EQ(lines[1].at("who"), "alice");
  EXPECT_EQ(lines[1].at("why"), "the bank says so");
  EXPECT_EQ(lines[1].at("command"), "resolve");
  EXPECT_EQ(lines[1].at("key"), done.text());
  EXPECT_EQ(lines[1].at("before").at("state"), "uncertain");
  EXPECT_EQ(lines[1].at("after").at("state"), "success");
  EXPECT_NE(lines[1].at("from").get<std::string>().find("console of operator"), std::string::npos);
  EXPECT_NE(lines[1].at("from").get<std::string>().find("127.0.0.1"), std::string::npos);
  EXPECT_EQ(lines[5].at("command"), "release --force");
}

TEST_P(Console, LeavesASettledRecordOutAtOnce) {
  const Key key = leave_uncertain("1");
  const ConsoleProcess console = start({"--every", "1h"});
  console.await_look();
  ASSERT_EQ(console.json("/api/records?state=stuck").at("records").size(), 1U);

  static_cast<void>(console.settle(body(console, key, "success")));

  EXPECT_EQ(console.json("/api/records?state=stuck").at("records").size(), 0U);
  EXPECT_EQ(console.json("/api/overview").at("unfinished").at("uncertain"), 0);
}

TEST_P(Console, SettlesOnlyTheRecordThatWasSeen) {
  const ConsoleProcess console = start();
  const Key key = leave_uncertain("1");
  console.await_look();
  const json late = body(console, key, "failed");
  static_cast<void>(console.settle(body(console, key, "success")));

  const json answer = console.settle(late, 409);

  EXPECT_EQ(answer.at("code"), "changed");
  EXPECT_EQ(answer.at("record").at("state"), "success");
  EXPECT_EQ(state_of(key), RecordState::success);
  EXPECT_EQ(audit_lines(audit_file()).size(), 2U);
  json unknown = late;
  unknown["id"] = hex("payment:none");
  EXPECT_TRUE(console.settle(unknown, 409).at("record").is_null());
  static_cast<void>(console.settle(body(console, key, "failed"), 409));
  EXPECT_EQ(state_of(key), RecordState::success) << "what is finished stays";
}

TEST_P(Console, RefusesARetryWhileARequestMayBeOnItsWay) {
  const ConsoleProcess careful = start();
  const ConsoleProcess eager = start({"--margin", "0ms"});
  const Key key = leave_uncertain("1");
  const Key other = leave_uncertain("2");
  const Key alive("payment", "alive");
  static_cast<void>(begin(alive));
  for (const ConsoleProcess* console : {&careful, &eager})
    console->await_look();

  const json early = careful.settle(body(careful, key, "retry"), 409);
  const RecordState before = state_of(key);
  json forced = body(careful, key, "retry");
  forced["force"] = true;
  json with_life = body(careful, alive, "retry");
  with_life["force"] = true;

  EXPECT_EQ(early.at("code"), "too_early");
  EXPECT_EQ(before, RecordState::uncertain);
  EXPECT_EQ(careful.settle(forced).at("record").at("state"), "failed");
  EXPECT_EQ(audit_lines(audit_file()).at(0).at("command"), "resolve --force");
  EXPECT_EQ(careful.settle(with_life, 409).at("code"), "refused");
  EXPECT_EQ(eager.settle(body(eager, other, "retry")).at("record").at("state"), "failed");
  EXPECT_EQ(careful.settle(body(careful, alive, "release"), 409).at("code"), "refused") << "held";
  EXPECT_EQ(state_of(alive), RecordState::processing);
}

TEST_P(Console, SettlesNothingForWhoHasNoToken) {
  const ConsoleProcess read_only(address());
  const ConsoleProcess console = start();
  const Key key = leave_uncertain("1");
  for (const ConsoleProcess* either : {&read_only, &console})
    either->await_look();
  const std::string text = body(console, key, "success").dump();
  const httplib::Headers right{{"Authorization", std::string("Bearer ") + ConsoleProcess::token}};

  EXPECT_EQ(read_only.post(text, right)->status, 403);
  EXPECT_FALSE(read_only.json("/api/overview").at("settles"));
  EXPECT_EQ(console.post(text, {})->status, 401);
  EXPECT_EQ(console.post(text, {{"Authorization", "Bearer wrong"}})->status, 401);
  EXPECT_EQ(console.post(text, {{"Authorization", ConsoleProcess::token}})->status, 401);
  EXPECT_EQ(console.post(text, right, "text/plain")->status, 415);
  EXPECT_EQ(state_of(key), RecordState::uncertain);
  EXPECT_TRUE(audit_lines(audit_file()).empty());
  EXPECT_EQ(console.post(text, right)->status, 200);
}

TEST_P(Console, ChangesNothingThatItCannotWriteDown) {
  const Key key = leave_uncertain("1");
  const ConsoleProcess console(address(), {"--audit-file", folder_.file("no/such/folder")},
                               {with_token});
  console.await_look();

  const json answer = console.settle(body(console, key, "success"), 409);

  EXPECT_EQ(answer.at("code"), "refused");
  EXPECT_EQ(state_of(key), RecordState::uncertain);
}

TEST_P(Console, UnderstandsWhatItIsAskedOrSaysThatItDoesNot) {
  const ConsoleProcess console = start();
  const Key key = leave_uncertain("1");
  const Key bytes = leave_uncertain("\xff<b>");
  console.await_look();
  json good = body(console, key, "success");
  const auto with = [&](const char* name, const json& value) {
    json other = good;
    other[name] = value;
    return other;
  };

  for (const json& bad :
       {json::array(), json(7), json::object(), with("verdict", "maybe"), with("reason", ""),
        with("reason", 7), with("force", "yes"), with("id", "zz"), with("id", "00"),
        with("surprise", 1), with("retention", "long"), with("reason", std::string(3'000, 'x')),
        with("text", json::object())}) {
    EXPECT_EQ(console.settle(bad, 400).at("code"), "usage") << bad.dump();
  }
  for (const char* path : {"/api/records?state=broken", "/api/records?limit=0",
                           "/api/records?limit=x", "/api/records?after=0",
                           "/api/records?state=stuck&after=77", "/api/record?id=", "/api/record",
                           "/api/records?older_than=soon", "/api/records?after=6e6f6e73656e7365"}) {
    EXPECT_EQ(console.json(path, 400).at("code"), "usage") << path;
  }
  EXPECT_EQ(console.get("/api/record?id=" + hex("no:record"))->status, 404);
  EXPECT_EQ(console.get("/nothing")->status, 404);
  EXPECT_EQ(console.json(path_of(bytes)).at("record").at("key_hex"), hex(bytes.text()));
  EXPECT_EQ(console.settle(body(console, bytes, "success")).at("record").at("state"), "success");
  EXPECT_EQ(state_of(key), RecordState::uncertain);
  EXPECT_EQ(console.json("/api/derived?id=" + hex(key.text()) + "&name=charge").at("derived"),
            derived_key(key, "charge"));
}

INSTANTIATE_TEST_SUITE_P(Stores, Console, ::testing::Values(Kind::sqlite, Kind::redis),
                         [](const ::testing::TestParamInfo<Kind>& tested) {
                           return tested.param == Kind::sqlite ? "Sqlite" : "Redis";
                         });

/// A console over an empty SQLite file.
class ConsoleAlone : public ::testing::Test {
 protected:
  ConsoleAlone() : store_(open_store(address())) {}
  std::string address() const { return "sqlite:" + folder_.file("records.db"); }

  TemporaryDirectory folder_;
  AnyStore store_;
};

TEST_F(ConsoleAlone, AnswersNoPageOfAnotherSite) {
  const ConsoleProcess console(address(), {"--allowed-host", "console.example"}, {with_token});
  const std::string own = console.url().substr(7);
  const auto status = [&](const httplib::Headers& headers, const char* path = "/api/overview") {
    return console.get(path, headers)->status;
  };
  const httplib::Headers cross_write{
      {"Authorization", std::string("Bearer ") + ConsoleProcess::token},
      {"Origin", "https://evil.example"}};

  EXPECT_EQ(status({{"Host", "evil.example"}}), 421) << "its name was made to lead here";
  EXPECT_EQ(status({{"Host", "evil.example"}}, "/"), 421);
  EXPECT_EQ(status({{"Host", "127.0.0.1.evil.example"}}), 421);
  EXPECT_EQ(status({{"Host", ""}}), 421);
  EXPECT_EQ(status({{"Host", "10.0.0.1"}}), 421);
  EXPECT_EQ(status({{"Host", "LOCALHOST:9000"}}), 200) << "through ssh -L";
  EXPECT_EQ(status({{"Host", "[::1]:9000"}}), 200);
  EXPECT_EQ(status({{"Host", "console.example"}}), 200);
  EXPECT_EQ(status({{"Origin", "https://evil.example"}}), 403);
  EXPECT_EQ(status({{"Origin", "null"}}), 403);
  EXPECT_EQ(status({{"Origin", "http://" + own}}), 200);
  EXPECT_EQ(status({{"Sec-Fetch-Site", "cross-site"}}), 403);
  EXPECT_EQ(status({{"Sec-Fetch-Site", "same-site"}}), 403);
  EXPECT_EQ(status({{"Sec-Fetch-Site", "same-origin"}}), 200);
  EXPECT_EQ(console.post("{}", cross_write)->status, 403);
  EXPECT_FALSE(console.get("/api/overview")->has_header("Access-Control-Allow-Origin"));
}

TEST_F(ConsoleAlone, TellsTheBrowserWhatThePageMayDo) {
  const ConsoleProcess console(address());

  for (const char* path : {"/", "/api/overview", "/nothing"}) {
    const httplib::Result answer = console.get(path);
    const std::string policy = answer->get_header_value("Content-Security-Policy");

    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos) << path;
    EXPECT_NE(policy.find("script-src 'sha256-"), std::string::npos) << path;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos) << path;
    EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos) << path;
    EXPECT_EQ(answer->get_header_value("X-Content-Type-Options"), "nosniff") << path;
    EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store") << path;
    EXPECT_EQ(answer->get_header_value("Referrer-Policy"), "no-referrer") << path;
  }
}

TEST_F(ConsoleAlone, BoundsWhatItIsSent) {
  const ConsoleProcess console(address(), {}, {with_token});
  const httplib::Headers right{{"Authorization", std::string("Bearer ") + ConsoleProcess::token}};

  const httplib::Result large = console.post(std::string(200'000, 'x'), right);
  httplib::Headers packed_body = right;
  packed_body.emplace("Content-Encoding", "gzip");
  const httplib::Result packed = console.post("{}", packed_body);
  httplib::Headers chunked_body = right;
  chunked_body.emplace("Transfer-Encoding", "chunked");
  const httplib::Result chunked = console.post("2\r\n{}\r\n0\r\n\r\n", chunked_body);

  // Or the connection is gone: what is not read is not answered for certain.
  EXPECT_TRUE(!large || large->status == 413);
  EXPECT_TRUE(!chunked || chunked->status == 411);
  EXPECT_TRUE(!packed || packed->status == 411);
  EXPECT_EQ(console.get("/" + std::string(10'000, 'x'))->status, 414);
  EXPECT_EQ(console.get("/", {{"Range", "bytes=0-9"}})->status, 416);
  EXPECT_EQ(console.get("/")->status, 200) << "and goes on";
}

TEST_F(ConsoleAlone, RefusesToListenBeyondThisHostUnlessToldSo) {
  const std::string token_file = folder_.file("token");
  std::ofstream(token_file) << ConsoleProcess::token << '\n';
  const std::vector<std::string> everywhere{"--store", address(), "--listen", "0.0.0.0:0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), everywhere.begin(), everywhere.end());
    return more;
  };

  EXPECT_EQ(refused(with({})).second, 2);
  EXPECT_EQ(refused(with({"--insecure"})).second, 2) << "without a token";
  EXPECT_EQ(refused(with({"--token-file", token_file})).second, 2);

  ChildProcess open =
      ChildProcess::start({IDEMPOTENCYCTL, "--json", "--store", address(), "serve", "--listen",
                           "0.0.0.0:0", "--insecure", "--token-file", token_file});
  std::string said;
  while (said.find("\"url\"") == std::string::npos)
    said = open.next_line().value();
  const std::string url = json::parse(said).at("url");
  httplib::Client client("http://127.0.0.1:" +
                         url.substr(url.rfind(':') + 1, url.size() - url.rfind(':') - 2));
  EXPECT_EQ(client.Get("/")->status, 200);
  EXPECT_EQ(client.Get("/api/overview")->status, 401) << "who reads needs the token as well";
  EXPECT_EQ(
      client
          .Get("/api/overview", {{"Authorization", std::string("Bearer ") + ConsoleProcess::token}})
          ->status,
      200);
}

TEST_F(ConsoleAlone, RefusesWhatItDoesNotUnderstand) {
  const std::string token_file = folder_.file("token");
  std::ofstream(token_file) << "short\n";
  const std::vector<std::string> store{"--store", address()};
  const auto code = [&](std::vector<std::string> more, std::vector<std::string> environment = {}) {
    more.insert(more.begin(), store.begin(), store.end());
    return refused(more, environment).second;
  };

  EXPECT_EQ(refused({}, {"IDEMPOTENCY_STORE="}).second, 2) << "which store?";
  EXPECT_EQ(code({"--listen", "127.0.0.1"}), 2);
  EXPECT_EQ(code({"--listen", "127.0.0.1:x"}), 2);
  EXPECT_EQ(code({"--listen", "127.0.0.1:70000"}), 2);
  EXPECT_EQ(code({"--listen", ":80"}), 2);
  EXPECT_EQ(code({"--token-file", token_file}), 2) << "too short";
  EXPECT_EQ(code({"--token-file", folder_.file("none")}), 2);
  EXPECT_EQ(code({}, {"IDEMPOTENCY_CONSOLE_TOKEN="}), 2) << "empty is no token";
  EXPECT_EQ(code({"--metrics", "file:///etc/passwd"}), 2);
  EXPECT_EQ(code({"--every", "often"}), 2);
  EXPECT_EQ(code({"--policies", folder_.file("none")}), 2);
  EXPECT_EQ(code({"--token", "anything"}), 2) << "never on the command line";
}

TEST_F(ConsoleAlone, DoesNotShareItsPort) {
  const ConsoleProcess console(address());
  const std::string port = console.url().substr(console.url().rfind(':') + 1);

  const auto [text, code] = refused({"--store", address(), "--listen", "127.0.0.1:" + port});

  EXPECT_EQ(code, 2) << text;
}

TEST_F(ConsoleAlone, EndsWellWhenItIsAskedTo) {
  for (const int signal : {SIGINT, SIGTERM}) {
    ConsoleProcess console(address());
    EXPECT_EQ(console.get("/")->status, 200);
    console.process().send(signal);
    EXPECT_EQ(console.process().wait(), (ProcessEnd{0, 0}));
  }
  ConsoleProcess at_once(address());
  at_once.process().send(SIGTERM);
  EXPECT_EQ(at_once.process().wait(), (ProcessEnd{0, 0}));
}

TEST_F(ConsoleAlone, SaysThatTheStoreIsAwayAndGoesOnWhenItIsBack) {
  RedisServer server(RedisServer::durable());
  AnyStore store = open_store(server.address());
  const Key key("payment", "1");
  const BeginRequest request{.key = key, .owner = OwnerToken::generate(), .lease = 1h};
  ASSERT_TRUE(std::holds_alternative<Acquired>(store.begin(request)));
  server.stop();
  const ConsoleProcess console(server.address());

  const json away =
      console.await("/api/overview", [](const json& a) { return a.at("problem") != ""; });
  EXPECT_FALSE(away.contains("unfinished"));
  EXPECT_EQ(console.json(path_of(key), 503).at("code"), "store");
  server.start();
  const json back = console.await(
      "/api/overview", [](const json& a) { return a.at("problem") == "" && a.contains("at"); });
  EXPECT_EQ(back.at("unfinished").at("running"), 1);
  server.stop();
  const json again =
      console.await("/api/overview", [](const json& a) { return a.at("problem") != ""; });
  EXPECT_EQ(again.at("unfinished").at("running"), 1) << "what was seen last";
  EXPECT_TRUE(again.at("failing_since").is_string());
  server.start();
  console.await("/api/overview", [](const json& a) { return a.at("problem") == ""; });
  EXPECT_EQ(console.json(path_of(key)).at("record").at("state"), "processing");
}

TEST_F(ConsoleAlone, CountsDuplicatesByWhatTheServiceExposes) {
  std::atomic<int> replayed{100};
  std::atomic<int> status{200};
  std::atomic<int> readings{0};
  LocalHttpServer service;
  service.http().Get("/metrics", [&](const httplib::Request&, httplib::Response& response) {
    response.status = status;
    response.set_content(
        "# TYPE idempotency_runs_total counter\n"
        "idempotency_runs_total{type=\"pay,\\\"}{\",outcome=\"replayed\"} " +
            std::to_string(replayed) +
            "\nidempotency_runs_total{outcome=\"executed\",type=\"payment\"} 5 1700000000000\n"
            "idempotency_runs_total{outcome=\"executed\"\nidempotency_runs_total{} NaN\n"
            "idempotency_runs_total_of_another{outcome=\"replayed\"} 9\n",
        "text/plain");
    ++readings;
  });
  service.start();
  const ConsoleProcess console(
      address(), {"--metrics", "http://127.0.0.1:" + std::to_string(service.port()) + "/metrics"});
  const auto sum = [](const json& answer) {
    double all = 0;
    for (const json& point : answer.at("points"))
      all += point.at("calls").value("replayed", 0.0);
    return all;
  };

  const json first =
      console.await("/api/duplicates", [](const json& a) { return a.at("points").size() >= 2; });
  EXPECT_EQ(sum(first), 0) << "what was counted before it looked is not known";
  EXPECT_EQ(first.at("points").at(0).at("targets"), 0);
  EXPECT_EQ(first.at("points").at(1).at("targets"), 1);
  replayed = 107;
  console.await("/api/duplicates", [&](const json& a) { return sum(a) == 7; });
  replayed = 3;  // the service was started anew
  console.await("/api/duplicates", [&](const json& a) { return sum(a) == 10; });
  status = 500;
  const json away = console.await(
      "/api/duplicates", [](const json& a) { return a.at("points").back().at("targets") == 0; });
  EXPECT_NE(away.at("targets").at(0).at("problem"), "");
}

TEST_F(ConsoleAlone, CountsNothingThatNobodyExposes) {
  const ConsoleProcess console(address());

  const json none = console.json("/api/duplicates");

  EXPECT_TRUE(none.at("targets").empty());
  EXPECT_TRUE(none.at("points").empty());
}

}  // namespace
}  // namespace idempotency
