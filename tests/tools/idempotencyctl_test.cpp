// The operator's tool as people and programs run it, on every kind of store.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/codecs/json.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/open.hpp"
#include "support/child_process.hpp"
#include "support/real_store.hpp"
#include "support/temporary_directory.hpp"
#include "tools/audit_lines.hpp"

namespace idempotency {

struct PaidReceipt {
  std::string charge_id;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(PaidReceipt, charge_id)
};
template <>
struct Codec<PaidReceipt> : JsonCodec<PaidReceipt> {
  static constexpr std::string_view name = "receipt";
};

namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing_support::ChildProcess;
using testing_support::RealStore;
using testing_support::StoreKind;
using testing_support::TemporaryDirectory;

/// What a run of the program said, and how it ended.
struct Said {
  std::vector<std::string> lines;  ///< of both outputs
  int code = -1;

  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& line : lines)
      all += line + '\n';
    return all;
  }
  [[nodiscard]] bool mentions(const std::string& part) const {
    return text().find(part) != std::string::npos;
  }
  /// The last line that is JSON.
  [[nodiscard]] json object() const {
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
      const json value = json::parse(*line, nullptr, false);
      if (value.is_object()) return value;
    }
    ADD_FAILURE() << "no JSON in: " << text();
    return json::object();
  }
};

Said run(std::vector<std::string> words) {
  words.insert(words.begin(), IDEMPOTENCYCTL);
  // Without a terminal to ask, whatever the test's own standard input is.
  std::vector<std::string> command{"/bin/sh", "-c",
                                   "unset IDEMPOTENCY_STORE; exec \"$@\" < /dev/null", "sh"};
  command.insert(command.end(), words.begin(), words.end());
  ChildProcess child = ChildProcess::start(command);
  Said said;
  said.lines = child.remaining_lines();
  said.code = child.wait().exit_code;
  return said;
}

class Idempotencyctl : public ::testing::TestWithParam<StoreKind> {
 protected:
  Idempotencyctl() : store_(open_store(address())) {}

  std::string address() const { return real_.address(); }
  /// A type of the test's own.
  static std::string type() {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    return name.substr(0, name.find('/')).substr(0, Key::max_type_bytes);
  }
  static Key key(const std::string& value) { return {type(), value}; }

  Ownership begin(const Key& key, RecordMode mode = RecordMode::hold,
                  std::chrono::milliseconds lease = 1h) {
    const BeginRequest request{.key = key,
                               .owner = OwnerToken::generate(),
                               .mode = mode,
                               .lease = lease,
                               .trace = "request-7"};
    return {request.owner, std::get<Acquired>(store_.begin(request)).fence};
  }
  void leave_uncertain(const Key& key) {
    EXPECT_EQ(store_.doubt(key, begin(key)), WriteOutcome::stored);
  }
  Said ctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--store", address(), "--json", "--audit-file", audit_file()});
    return run(words);
  }
  std::string audit_file() const { return folder_.file("audit.jsonl"); }
  std::vector<json> audit() const { return testing_support::audit_lines(audit_file()); }

  const RealStore real_{GetParam()};
  const TemporaryDirectory folder_;
  AnyStore store_;
  IdempotencyGuard<AnyStore> guard_{store_};
};

TEST_P(Idempotencyctl, ShowsARecord) {
  leave_uncertain(key("1"));

  const Said said = ctl({"get", key("1").text()});
  const Said none = ctl({"get", key("2").text()});

  EXPECT_EQ(said.code, 0);
  const json record = said.object();
  EXPECT_EQ(record.at("key"), key("1").text());
  EXPECT_EQ(record.at("state"), "uncertain");
  EXPECT_EQ(record.at("mode"), "hold");
  EXPECT_EQ(record.at("fence"), 1);
  EXPECT_EQ(record.at("trace"), "request-7");
  EXPECT_EQ(none.code, 1);
}

TEST_P(Idempotencyctl, ListsByTypeStateAndAge) {
  for (const char* value : {"a", "b", "c"})
    leave_uncertain(key(value));
  static_cast<void>(begin(key("d")));

  const json uncertain = ctl({"list", "--type", type(), "--state", "uncertain"}).object();
  const json young = ctl({"list", "--type", type(), "--older-than", "1h"}).object();
  const json first = ctl({"list", "--type", type(), "--limit", "2"}).object();
  const json rest =
      ctl({"list", "--type", type(), "--limit", "0", "--after", first.at("cursor")}).object();

  EXPECT_EQ(uncertain.at("records").size(), 3U);
  EXPECT_EQ(young.at("records").size(), 0U);
  EXPECT_EQ(first.at("records").size(), 2U);
  ASSERT_EQ(rest.at("records").size(), 2U);
  EXPECT_EQ(rest.at("records").at(1).at("value"), "d");
}

TEST_P(Idempotencyctl, NamesWhatCannotBeReadAndListsTheRest) {
  for (const char* value : {"a", "b", "c"})
    leave_uncertain(key(value));
  real_.spoil(key("b"));

  const Said said = ctl({"list", "--type", type(), "--state", "uncertain"});
  const Said shown = run({"--store", address(), "list", "--type", type()});
  real_.forget(key("b"));

  EXPECT_EQ(said.code, 0) << said.text();
  const json listed = said.object();
  EXPECT_EQ(listed.at("records").size(), 2U);
  ASSERT_EQ(listed.at("unreadable").size(), 1U) << said.text();
  EXPECT_EQ(listed.at("unreadable").at(0).at("key"), key("b").text());
  EXPECT_FALSE(listed.at("unreadable").at(0).at("why").get<std::string>().empty());
  EXPECT_EQ(shown.code, 0) << shown.text();
  EXPECT_TRUE(shown.mentions("cannot be read: " + key("b").text() + ": ")) << shown.text();
  EXPECT_TRUE(shown.mentions(key("c").text())) << shown.text();
}

TEST_P(Idempotencyctl, CountsOnceAndAgain) {
  leave_uncertain(key("1"));

  const json once = ctl({"stats"}).object();
  const Said again = ctl({"watch", "--every", "10ms", "--times", "3"});

  EXPECT_GE(once.at("uncertain"), 1);
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.lines.size(), 3U);
  EXPECT_GE(again.object().at("uncertain"), 1);
}

TEST_P(Idempotencyctl, SettlesWithTheJsonThatAHandlersTypeIsReadFrom) {
  leave_uncertain(key("json"));
  const std::string file = folder_.file("receipt.json");
  std::ofstream(file) << "{ \"charge_id\" : \"c-1\" }";
  const std::string garbage = folder_.file("garbage");
  std::ofstream(garbage) << "garbage";
  const auto resolve = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"resolve", key("json").text(), "--success", "--reason", "x",
                                   "--yes"};
    words.insert(words.end(), more.begin(), more.end());
    return ctl(words);
  };

  EXPECT_EQ(resolve({"--result", garbage}).code, 2);
  EXPECT_EQ(resolve({"--result", folder_.file("")}).code, 2) << "a folder";
  EXPECT_EQ(resolve({"--result-json", "receipt", garbage}).code, 2);
  EXPECT_EQ(resolve({"--result-json", "{receipt}", file}).code, 2);
  EXPECT_EQ(resolve({"--result-json", "receipt"}).code, 2);
  EXPECT_EQ(resolve({"--result-json", "receipt", file, "--result-text", "x"}).code, 2);
  EXPECT_TRUE(audit().empty());
  const Said done = resolve({"--result-json", "receipt", file});
  EXPECT_EQ(done.code, 0) << done.text();

  const auto paid = guard_.run({.key = key("json")}, [] { return PaidReceipt{"c-2"}; });
  EXPECT_EQ(paid.status(), RunStatus::replayed);
  EXPECT_EQ(paid.value().charge_id, "c-1");
}

TEST_P(Idempotencyctl, SettlesWithEveryAnswerAndWritesItDown) {
  for (const char* value : {"done", "failed", "free"})
    leave_uncertain(key(value));

  const Said done = ctl({"resolve", key("done").text(), "--success", "--result-text", "receipt 1",
                         "--reason", "the bank says so", "--yes", "--who", "alice"});
  const Said failed = ctl(
      {"resolve", key("failed").text(), "--failed", "refused", "--reason", "ticket 7", "--yes"});
  const Said released = ctl({"resolve", key("free").text(), "--retry", "--margin", "0ms",
                             "--reason", "ticket 8", "--yes"});

  EXPECT_EQ(done.code, 0) << done.text();
  EXPECT_EQ(failed.code, 0) << failed.text();
  EXPECT_EQ(released.code, 0) << released.text();
  const auto pay = [&](const char* value) {
    return guard_.run({.key = key(value)}, [] { return std::string("new"); });
  };
  EXPECT_EQ(pay("done").value(), "receipt 1");
  EXPECT_EQ(pay("failed").failure(), "refused");
  EXPECT_EQ(pay("free").status(), RunStatus::executed);
  const std::vector<json> lines = audit();
  ASSERT_EQ(lines.size(), 6U) << "one before each change, one behind it";
  EXPECT_EQ(lines[1].at("who"), "alice");
  EXPECT_EQ(lines[1].at("why"), "the bank says so");
  EXPECT_EQ(lines[1].at("key"), key("done").text());
  EXPECT_EQ(lines[1].at("before").at("state"), "uncertain");
  EXPECT_EQ(lines[1].at("after").at("state"), "success");
  EXPECT_EQ(lines[1].at("outcome"), "changed");
}

TEST_P(Idempotencyctl, SettlesAsFailedWithANeutralTextWhereNoneIsGiven) {
  leave_uncertain(key("1"));
  leave_uncertain(key("2"));

  const Said before =
      ctl({"resolve", key("1").text(), "--failed", "--reason", "ticket 7", "--yes"});
  const Said behind =
      ctl({"resolve", key("2").text(), "--reason", "ticket 7", "--failed", "--yes"});

  EXPECT_EQ(before.code, 0) << before.text();
  EXPECT_EQ(behind.code, 0) << behind.text();
  for (const char* value : {"1", "2"}) {
    EXPECT_EQ(guard_.run({.key = key(value)}, [] { return 1; }).failure(),
              "it was not done, and shall not be");
  }
}

TEST_P(Idempotencyctl, TakesAResultFromAFileAndGivesItBack) {
  leave_uncertain(key("1"));
  const std::string in = folder_.file("result");
  std::ofstream(in, std::ios::binary) << encode_result(42);

  const Said settled = ctl({"resolve", key("1").text(), "--success", "--result", in, "--reason",
                            "the bank says so", "--yes"});
  const Said shown = ctl({"get", key("1").text(), "--result-file", folder_.file("out")});

  EXPECT_EQ(settled.code, 0) << settled.text();
  EXPECT_EQ(shown.code, 0) << shown.text();
  std::ifstream out(folder_.file("out"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(out), std::istreambuf_iterator<char>()};
  EXPECT_EQ(decode_result<int>(bytes), 42);
  EXPECT_EQ(guard_.run({.key = key("1")}, [] { return 1; }).value(), 42);
}

TEST_P(Idempotencyctl, ChangesNothingThatNobodyConfirmed) {
  leave_uncertain(key("1"));

  const Said said =
      ctl({"resolve", key("1").text(), "--retry", "--margin", "0ms", "--reason", "why not"});

  EXPECT_EQ(said.code, 4);
  EXPECT_TRUE(said.mentions("--yes")) << said.text();
  EXPECT_EQ(store_.find(key("1"))->state, RecordState::uncertain);
  EXPECT_TRUE(audit().empty());
}

TEST_P(Idempotencyctl, LeavesAloneWhatIsFinishedAliveOrAtAnotherFence) {
  static_cast<void>(guard_.run({.key = key("finished")}, [] { return 1; }));
  static_cast<void>(begin(key("alive")));
  leave_uncertain(key("fence"));
  const auto resolve = [&](const char* value, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"resolve", key(value).text(), "--retry", "--margin",
                                   "0ms",     "--reason",        "test",    "--yes"};
    words.insert(words.end(), more.begin(), more.end());
    return ctl(words).code;
  };

  EXPECT_EQ(resolve("finished"), 4);
  EXPECT_EQ(resolve("alive"), 4);
  EXPECT_EQ(resolve("alive", {"--force"}), 4) << "nothing forces a living owner";
  EXPECT_EQ(resolve("fence", {"--fence", "7"}), 4);
  EXPECT_EQ(resolve("none"), 1);
  EXPECT_EQ(resolve("fence", {"--fence", "1"}), 0);
  EXPECT_EQ(store_.find(key("finished"))->state, RecordState::success);
  EXPECT_EQ(store_.find(key("alive"))->state, RecordState::processing);
}

TEST_P(Idempotencyctl, RefusesARetryWhileARequestMayBeOnItsWay) {
  leave_uncertain(key("1"));
  const auto retry = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"resolve",  key("1").text(),          "--retry",
                                   "--reason", "the bank knows nothing", "--yes"};
    words.insert(words.end(), more.begin(), more.end());
    return ctl(words);
  };

  const Said early = retry({});
  const Said later = retry({"--margin", "1h"});
  const RecordState before = store_.find(key("1"))->state;
  const Said forced = retry({"--margin", "1h", "--force"});

  EXPECT_EQ(early.code, 4);
  EXPECT_TRUE(early.mentions("too early")) << early.text();
  EXPECT_EQ(later.code, 4);
  EXPECT_EQ(before, RecordState::uncertain);
  EXPECT_EQ(forced.code, 0) << forced.text();
  ASSERT_EQ(audit().size(), 2U);
  EXPECT_EQ(audit().at(0).at("command"), "resolve --force");
}

TEST_P(Idempotencyctl, TakesARecordFromAnOwnerThatHangs) {
  static_cast<void>(begin(key("hangs"), RecordMode::take_over, 1ms));
  static_cast<void>(begin(key("holds"), RecordMode::hold, 1ms));
  const auto release = [&](const char* value, bool force) {
    std::vector<std::string> words{"release", key(value).text(), "--reason", "it hangs", "--yes"};
    if (force) words.emplace_back("--force");
    return ctl(words).code;
  };

  EXPECT_EQ(release("hangs", false), 0);
  EXPECT_EQ(release("hangs", false), 4) << "it is processing no more";
  EXPECT_EQ(release("holds", false), 4);
  EXPECT_EQ(store_.find(key("holds"))->state, RecordState::processing);
  EXPECT_EQ(release("holds", true), 0);
  EXPECT_EQ(guard_.run({.key = key("hangs")}, [] { return 1; }).status(), RunStatus::executed);
}

TEST_P(Idempotencyctl, RemovesWhatIsPastItsRetention) {
  for (int number = 0; number < 30; ++number) {
    static_cast<void>(
        guard_.run({.key = key(std::to_string(number)), .policy = {.success_retention = 1ms}},
                   [] { return 1; }));
  }
  static_cast<void>(guard_.run({.key = key("kept")}, [] { return 1; }));

  const Said said = ctl({"purge", "--batch", "10", "--pause", "0ms", "--yes"});

  EXPECT_EQ(said.code, 0) << said.text();
  EXPECT_TRUE(said.object().at("complete"));
  EXPECT_TRUE(store_.find(key("kept")).has_value());
  EXPECT_EQ(audit().at(0).at("command"), "purge");
}

TEST_P(Idempotencyctl, SaysWhatCouldLoseRecords) {
  const Said said = ctl({"doctor"});

  const json report = said.object();
  EXPECT_EQ(said.code, report.at("hazards").empty() ? 0 : 5) << said.text();
  if (GetParam() == StoreKind::redis) {
    EXPECT_FALSE(report.at("hazards").empty()) << "the server keeps nothing on its disk";
  }
  EXPECT_TRUE(report.at("counts").is_object());
}

TEST_P(Idempotencyctl, ChecksTheSchema) {
  EXPECT_EQ(ctl({"schema", "check"}).code, 0);
  EXPECT_EQ(ctl({"schema", "migrate", "--yes"}).code, 0) << "there is nothing to do";
}

TEST_P(Idempotencyctl, PrintsTablesForPeople) {
  leave_uncertain(key("1"));
  std::vector<std::string> words{"--store", address(), "list", "--type", type()};

  const Said listed = run(words);
  const Said shown = run({"--store", address(), "get", key("1").text()});

  EXPECT_EQ(listed.code, 0);
  EXPECT_TRUE(listed.mentions("KEY")) << listed.text();
  EXPECT_TRUE(listed.mentions(key("1").text())) << listed.text();
  EXPECT_TRUE(shown.mentions("uncertain")) << shown.text();
}

INSTANTIATE_TEST_SUITE_P(Stores, Idempotencyctl,
                         ::testing::Values(StoreKind::sqlite, StoreKind::redis, StoreKind::mariadb),
                         testing_support::name_of);

TEST(IdempotencyctlAlone, PrintsTheStoredKeyOfItsParts) {
  EXPECT_EQ(run({"key", "payment", "order-7"}).lines.at(0), "payment:order-7");
  EXPECT_EQ(run({"key", "payment", "a:b", "7"}).lines.at(0), Key::of("payment", "a:b", 7).text());
  const std::string long_value(1'000, 'x');
  EXPECT_EQ(run({"key", "payment", "--digested", long_value}).lines.at(0),
            Key::digested("payment", long_value).text());
  EXPECT_EQ(run({"key", "payment", "order-7", "--derived", "charge"}).lines.at(1),
            derived_key({"payment", "order-7"}, "charge"));
  EXPECT_EQ(run({"key", "no type", "1"}).code, 2);
}

TEST(IdempotencyctlAlone, PrintsTheSchema) {
  EXPECT_TRUE(run({"schema", "print", "--dialect", "sqlite"}).mentions("WITHOUT ROWID"));
  EXPECT_TRUE(run({"schema", "print", "--dialect", "mysql"}).mentions("ENGINE = InnoDB"));
  EXPECT_EQ(run({"schema", "print", "--dialect", "oracle"}).code, 2);
}

TEST(IdempotencyctlAlone, MakesNothingThatIsNotThere) {
  const TemporaryDirectory folder;
  const std::string file = folder.file("records.db");
  const std::string store = "sqlite:" + file;

  EXPECT_EQ(run({"--store", store, "stats"}).code, 2);
  EXPECT_EQ(run({"--store", store, "doctor"}).code, 2);
  EXPECT_EQ(run({"--store", store, "schema", "check"}).code, 2);
  EXPECT_EQ(run({"--store", store, "schema", "migrate"}).code, 4);
  EXPECT_FALSE(std::filesystem::exists(file));
  std::ofstream(file) << "";
  EXPECT_EQ(run({"--store", store, "stats"}).code, 2) << "of another program";
  EXPECT_EQ(run({"--store", store, "schema", "check"}).code, 5);
  EXPECT_EQ(run({"--store", store, "schema", "migrate", "--yes"}).code, 0);
  EXPECT_EQ(run({"--store", store, "schema", "check"}).code, 0);
  EXPECT_EQ(run({"--store", store, "stats"}).code, 0);
}

TEST(IdempotencyctlAlone, RefusesWhatItDoesNotUnderstand) {
  const TemporaryDirectory folder;
  const std::string store = "sqlite:" + folder.file("records.db");
  ASSERT_EQ(run({"--store", store, "schema", "migrate", "--yes"}).code, 0);

  EXPECT_EQ(run({}).code, 2);
  EXPECT_EQ(run({"stats"}).code, 2) << "no store";
  const Said unknown = run({"--store", "oracle://x", "stats"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(unknown.mentions("'oracle:'") && unknown.mentions("sqlite:")) << unknown.text();
  EXPECT_FALSE(unknown.mentions("memory:")) << unknown.text();
  EXPECT_EQ(run({"--store", "memory:", "stats"}).code, 2);
  EXPECT_EQ(run({"--store", store, "get", "nokey"}).code, 2);
  EXPECT_EQ(run({"--store", store, "list", "--state", "broken"}).code, 2);
  EXPECT_EQ(run({"--store", store, "list", "--older-than", "5 minutes"}).code, 2);
  EXPECT_EQ(run({"--store", store, "list", "--after", "nonsense"}).code, 2);
  EXPECT_EQ(run({"--store", store, "list", "--type", "pay:ment"}).code, 2);
  EXPECT_EQ(run({"--store", store, "resolve", "a:1", "--retry"}).code, 2) << "no reason";
  EXPECT_EQ(run({"--store", store, "resolve", "a:1", "--retry", "--success", "--reason", "x"}).code,
            2);
  EXPECT_EQ(run({"--store", store, "resolve", "a:1", "--success", "--force", "--reason", "x"}).code,
            2);
  EXPECT_EQ(run({"--store", store, "resolve", "a:1", "--failed=--yes", "--reason", "x"}).code, 2);
  EXPECT_EQ(run({"--store", store, "purge", "--batch", "0", "--yes"}).code, 2);
  EXPECT_TRUE(run({"--store", store, "list", "--limit", "-1"}).mentions("no number from 0"));
  EXPECT_EQ(run({"--store", "redis://127.0.0.1:1", "stats"}).code, 3);
  EXPECT_EQ(run({"--help"}).code, 0);
}

TEST(IdempotencyctlAlone, ShowsNoPasswordAndNoControlCharacters) {
  const Said said = run({"--store", "mysql://app:secret@127.0.0.1:1/shop", "stats"});

  EXPECT_EQ(said.code, 3);
  EXPECT_FALSE(said.mentions("secret")) << said.text();
  EXPECT_FALSE(run({"--store", "sqlite:x", "get", "a\033[2J"}).mentions("\033"));
}

TEST(IdempotencyctlAlone, WarnsOfAFileThatIsLostWhenTheHostStartsAnew) {
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const std::filesystem::path folder = "/dev/shm/idempotencyctl-test-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const std::string store = "sqlite:" + (folder / "records.db").string();
  EXPECT_EQ(run({"--store", store, "schema", "migrate", "--yes"}).code, 0);

  const Said said = run({"--store", store, "doctor"});
  std::filesystem::remove_all(folder);

  EXPECT_EQ(said.code, 5) << said.text();
  EXPECT_TRUE(said.mentions("in memory")) << said.text();
  EXPECT_TRUE(said.mentions("other processes")) << said.text();
}

TEST(IdempotencyctlAlone, ChangesNothingThatItCannotWriteDown) {
  const TemporaryDirectory folder;
  const std::string store = "sqlite:" + folder.file("records.db");

  const Said said = run({"--store", store, "--audit-file", folder.file("no/such/folder"), "schema",
                         "migrate", "--yes"});

  EXPECT_EQ(said.code, 4) << said.text();
  EXPECT_FALSE(std::filesystem::exists(folder.file("records.db")));
}

}  // namespace
}  // namespace idempotency
