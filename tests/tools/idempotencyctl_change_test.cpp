// What the operator's tool changes while the record, its owner, the store or the audit do not keep still.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "idempotency/edges/http.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/stores/open.hpp"
#include "idempotency/stores/redis.hpp"
#include "support/event.hpp"
#include "support/fault_proxy.hpp"
#include "support/mariadb_server.hpp"
#include "support/redis_server.hpp"
#include "support/temporary_directory.hpp"
#include "tools/audit_lines.hpp"
#include "tools/terminal.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing_support::Cue;
using testing_support::Event;
using testing_support::FaultProxy;
using testing_support::MariaDbServer;
using testing_support::NetworkFault;
using testing_support::PlainConnection;
using testing_support::RedisServer;
using testing_support::run_at_a_terminal;
using testing_support::TemporaryDirectory;
using testing_support::TerminalRun;

std::string redis_address(std::uint16_t port) {
  return "redis://127.0.0.1:" + std::to_string(port);
}

class IdempotencyctlChange : public ::testing::Test {
 protected:
  IdempotencyctlChange() { RedisServer::shared().text({"FLUSHALL"}); }

  TerminalRun ctl(std::vector<std::string> words, const Cue& cue = {}) const {
    words.insert(words.begin(), {IDEMPOTENCYCTL, "--audit-file", audit_file(), "--store", store_});
    return run_at_a_terminal(std::move(words), cue);
  }
  std::string audit_file() const { return folder_.file("audit.jsonl"); }
  std::vector<json> audit() const { return testing_support::audit_lines(audit_file()); }
  template <class StoreT>
  static Ownership begin(StoreT& store, const Key& key, RecordMode mode,
                         std::chrono::milliseconds lease = 1h) {
    const BeginRequest request{
        .key = key, .owner = OwnerToken::generate(), .mode = mode, .lease = lease};
    return {request.owner, std::get<Acquired>(store.begin(request)).fence};
  }
  template <class StoreT>
  static void leave_uncertain(StoreT& store, const Key& key) {
    EXPECT_EQ(store.doubt(key, begin(store, key, RecordMode::hold)), WriteOutcome::stored);
  }

  TemporaryDirectory folder_;
  std::string store_ = redis_address(RedisServer::shared().port());
};

TEST_F(IdempotencyctlChange, NeedsForceForARecordWhoseOwnerIsAtWorkAsFarAsIsKnown) {
  RedisStore store(RedisServer::shared().options());
  const Key key("report", "7");
  static_cast<void>(begin(store, key, RecordMode::take_over));

  const TerminalRun release = ctl({"--yes", "release", key.text(), "--reason", "it hangs"});
  const RecordState before = store.find(key)->state;
  const TerminalRun forced =
      ctl({"--yes", "release", key.text(), "--force", "--reason", "its host is off"});

  EXPECT_EQ(release.code, 4) << release.said;
  EXPECT_NE(release.said.find("can happen twice"), std::string::npos) << release.said;
  EXPECT_EQ(before, RecordState::processing);
  EXPECT_EQ(forced.code, 0) << forced.said;
  EXPECT_EQ(store.find(key)->state, RecordState::failed);
  EXPECT_EQ(audit().at(0).at("command"), "release --force");
}

TEST_F(IdempotencyctlChange, NeedsForceForATypeThatHoldsHoweverItsRecordIsStored) {
  RedisStore store(RedisServer::shared().options());
  const std::string policies = folder_.file("policies.json");
  std::ofstream(policies) << R"({"transfer": {"on_expired_lease": "hold"}})";
  for (const char* type : {"payment", "transfer", "report"})
    static_cast<void>(begin(store, {type, "1"}, RecordMode::take_over, 1ms));
  const auto release = [&](const char* key) {
    return ctl({"--yes", "release", key, "--policies", policies, "--reason", "x"}).code;
  };

  EXPECT_EQ(release("payment:1"), 4);
  EXPECT_EQ(release("transfer:1"), 4);
  EXPECT_EQ(release("report:1"), 0);
}

TEST_F(IdempotencyctlChange, DoesNotReleaseARunThatHasPassedItsPointOfNoReturnSinceItWasShown) {
  RedisStore store(RedisServer::shared().options());
  IdempotencyGuard guard{store};
  const Key key("report", "7");
  Event started;
  Event go;
  Event marked;
  Event finish;
  std::atomic<int> effects{0};
  const auto handler = [&](Execution& execution) {
    started.set();
    static_cast<void>(go.wait());
    execution.point_of_no_return();
    ++effects;
    marked.set();
    static_cast<void>(finish.wait());
    return 1;
  };
  std::thread owner([&] { static_cast<void>(guard.run({.key = key}, handler)); });
  EXPECT_TRUE(started.wait());

  const TerminalRun release =
      ctl({"release", key.text(), "--force", "--reason", "it hangs"}, {.then = [&](pid_t) {
            go.set();
            EXPECT_TRUE(marked.wait());
          }});
  go.set();
  finish.set();
  const RunStatus next = guard.run({.key = key}, handler).status();
  owner.join();

  EXPECT_EQ(release.code, 4) << release.said;
  EXPECT_NE(release.said.find("has moved"), std::string::npos) << release.said;
  EXPECT_EQ(effects, 1) << "the next call was " << static_cast<int>(next);
  EXPECT_EQ(audit().back().at("outcome"), "nothing was changed");
}

// A run of a batch that waits is stored as `take_over`; when its turn comes it is held.
TEST_F(IdempotencyctlChange, DoesNotReleaseAHeldRunOfABatchThatHasStartedSinceItWasShown) {
  RedisStore store(RedisServer::shared().options());
  IdempotencyGuard guard{store};
  std::atomic<int> starts{0};
  Event started;
  Event finish;
  std::vector<Operation> both{{.key = {"payment", "1"}}, {.key = {"payment", "2"}}};
  RunBatch batch = guard.begin_many(both);
  std::thread owner;

  const TerminalRun unforced = ctl({"--yes", "release", "payment:2", "--reason", "it hangs"});
  const TerminalRun release =
      ctl({"release", "payment:2", "--force", "--reason", "it hangs"}, {.then = [&](pid_t) {
            owner = std::thread([&] {
              static_cast<void>(batch.run(0, [] { return 1; }));
              static_cast<void>(batch.run(1, [&] {
                ++starts;
                started.set();
                static_cast<void>(finish.wait());
                return 1;
              }));
            });
            EXPECT_TRUE(started.wait());
          }});
  IdempotencyGuard other{store};
  static_cast<void>(other.run({.key = {"payment", "2"}}, [&] { return ++starts; }));
  finish.set();
  if (owner.joinable()) owner.join();

  EXPECT_EQ(unforced.code, 4) << unforced.said;
  EXPECT_EQ(release.code, 4) << release.said;
  EXPECT_EQ(starts, 1) << "hold: at most one start per settlement";
}

TEST_F(IdempotencyctlChange, DoesNotReleaseARecordWhoseOwnerCameBackSinceItWasShown) {
  RedisStore store(RedisServer::shared().options());
  const Key key("report", "7");
  const Ownership owner = begin(store, key, RecordMode::take_over, 1ms);

  const TerminalRun release =
      ctl({"release", key.text(), "--reason", "it hangs"},
          {.then = [&](pid_t) { EXPECT_EQ(store.renew(key, owner, 1h), WriteOutcome::stored); }});

  EXPECT_EQ(release.code, 4) << release.said;
  EXPECT_EQ(store.find(key)->state, RecordState::processing);
}

// Whichever answer is lost, with nothing behind it: a record that has been settled is never said to be unchanged.
TEST_F(IdempotencyctlChange, SaysThatItDoesNotKnowWhenTheAnswerWasLostAndNothingAnswersAnyMore) {
  RedisStore store(RedisServer::shared().options());
  FaultProxy proxy(RedisServer::shared().port());
  store_ = redis_address(proxy.port());
  const auto resolve = [&](const Key& key) {
    leave_uncertain(store, key);
    return ctl({"--yes", "resolve", key.text(), "--success", "--reason", "x"});
  };
  EXPECT_EQ(resolve({"payment", "whole"}).code, 0);
  const std::uint64_t one_run = proxy.requests();
  int unknown = 0;
  for (std::uint64_t lost = 0; lost < one_run; ++lost) {
    const Key key("payment", std::to_string(lost));
    const std::uint64_t last = proxy.requests() + lost;
    proxy.plan([last](std::uint64_t number) {
      if (number < last) return NetworkFault::none;
      return number == last ? NetworkFault::cut_before_reply : NetworkFault::cut_before_request;
    });

    const TerminalRun said = resolve(key);
    proxy.settle();
    proxy.heal();

    if (store.find(key)->state == RecordState::uncertain) continue;
    const std::string outcome = audit().back().at("outcome");
    EXPECT_TRUE(said.code == 0 || said.code == 6) << said.code << ": " << said.said;
    EXPECT_EQ(said.said.find("nothing was changed"), std::string::npos) << said.said;
    EXPECT_EQ(outcome.find("nothing was changed"), std::string::npos) << outcome;
    if (said.code == 6) ++unknown;
  }
  EXPECT_GE(unknown, 1);
}

TEST_F(IdempotencyctlChange, WritesDownAChangeBeforeItIsMade) {
  RedisStore store(RedisServer::shared().options());
  const Key key("payment", "1");
  leave_uncertain(store, key);

  const TerminalRun said = ctl({"--yes", "resolve", key.text(), "--success", "--reason", "x"});

  EXPECT_EQ(said.code, 0) << said.said;
  const std::vector<json> lines = audit();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].at("outcome"), "about to be changed");
  EXPECT_EQ(lines[0].at("before").at("state"), "uncertain");
  EXPECT_EQ(lines[1].at("outcome"), "changed");
  EXPECT_EQ(lines[1].at("after").at("state"), "success");
  EXPECT_EQ(lines[0].at("change"), lines[1].at("change"));
}

TEST_F(IdempotencyctlChange, ChangesNothingWhenTheAuditIsFull) {
  RedisStore store(RedisServer::shared().options());
  const Key key("payment", "1");
  leave_uncertain(store, key);

  const TerminalRun said =
      run_at_a_terminal({IDEMPOTENCYCTL, "--audit-file", "/dev/full", "--store", store_, "--yes",
                         "resolve", key.text(), "--success", "--reason", "x"});

  EXPECT_EQ(said.code, 4) << said.said;
  EXPECT_EQ(store.find(key)->state, RecordState::uncertain);
}

TEST_F(IdempotencyctlChange, SaysThatAChangeIsNotWrittenDown) {
  RedisStore store(RedisServer::shared().options());
  const Key first("payment", "1");
  const Key second("payment", "2");
  leave_uncertain(store, first);
  leave_uncertain(store, second);
  EXPECT_EQ(ctl({"--yes", "resolve", first.text(), "--success", "--reason", "x"}).code, 0);
  std::ifstream written(audit_file());
  std::string line;
  std::getline(written, line);
  // The file may grow by the first line and a part of the second.
  constexpr std::size_t block = 512;
  const std::size_t blocks = 8;
  std::ofstream(audit_file(), std::ios::trunc)
      << std::string(blocks * block - line.size() - 50, '\n');

  const TerminalRun said =
      run_at_a_terminal({"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh",
                         IDEMPOTENCYCTL, "--audit-file", audit_file(), "--store", store_, "--yes",
                         "resolve", second.text(), "--success", "--reason", "x"});

  EXPECT_EQ(said.code, 7) << said.said;
  EXPECT_NE(said.said.find("lacks this line"), std::string::npos) << said.said;
  EXPECT_EQ(store.find(second)->state, RecordState::success);
}

TEST_F(IdempotencyctlChange, WritesDownAPurgeThatFailsHalfWay) {
  MySqlStore store(MariaDbServer::shared().options());
  IdempotencyGuard guard{store};
  for (int number = 0; number < 100; ++number) {
    static_cast<void>(
        guard.run({.key = {"order", std::to_string(number)}, .policy = {.success_retention = 1ms}},
                  [] { return 1; }));
  }
  PlainConnection plain(MariaDbServer::shared().options());
  store_ = MariaDbServer::shared().address();

  const TerminalRun purge =
      ctl({"--yes", "purge", "--batch", "1", "--pause", "20ms", "--reason", "room"},
          {.words = " removed",
           .then = [&](pid_t) { plain.run("RENAME TABLE idempotency_record TO moved_away"); },
           .answer = {}});
  const int left = std::stoi(plain.ask("SELECT COUNT(*) FROM moved_away"));
  plain.run("RENAME TABLE moved_away TO idempotency_record");
  plain.run("DELETE FROM idempotency_record");

  EXPECT_EQ(purge.code, 2) << purge.said;
  ASSERT_EQ(audit().size(), 2U);
  const json line = audit().back();
  EXPECT_EQ(line.at("command"), "purge");
  EXPECT_EQ(line.at("after").at("removed"), 100 - left);
  EXPECT_FALSE(line.at("after").at("complete"));
}

TEST_F(IdempotencyctlChange, WritesDownAPurgeThatASignalStops) {
  store_ = "sqlite:" + folder_.file("records.db");
  for (const int signal : {SIGINT, SIGTERM}) {
    AnyStore store = open_store(store_);
    IdempotencyGuard guard{store};
    for (int number = 0; number < 50; ++number) {
      static_cast<void>(guard.run(
          {.key = {"order", std::to_string(number)}, .policy = {.success_retention = 1ms}},
          [] { return 1; }));
    }

    const TerminalRun purge = ctl({"--yes", "purge", "--batch", "1", "--pause", "200ms"},
                                  {.words = " removed",
                                   .then = [&](pid_t program) { ::kill(program, signal); },
                                   .answer = {}});

    EXPECT_EQ(purge.code, 8) << purge.said;
    const json line = audit().back();
    EXPECT_EQ(line.at("outcome"), "stopped by a signal");
    EXPECT_GE(line.at("after").at("removed"), 1);
    EXPECT_LT(line.at("after").at("removed"), 50);
  }
}

TEST_F(IdempotencyctlChange, SettlesAnHttpRequestWithTheResponseThatItsRetriesGet) {
  RedisStore store(RedisServer::shared().options());
  IdempotencyGuard guard{store};
  HttpIdempotency shop{guard};
  const HttpRequest request{.method = "POST",
                            .path = "/pay",
                            .headers = {{"Idempotency-Key", "k"}},
                            .body = "{}",
                            .principal = "alice"};
  const auto pay = [&] { return shop.handle(request, [] { return HttpResponse{.status = 504}; }); };
  static_cast<void>(pay());
  const std::string key = store.list({}, {}, 1).records.front().key.text();
  const std::string body = folder_.file("body");
  std::ofstream(body, std::ios::binary) << "paid\r\n";
  const auto resolve = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--yes", "resolve", key, "--reason", "x"};
    words.insert(words.end(), more.begin(), more.end());
    return ctl(words).code;
  };

  for (const char* status : {"99", "100", "600", "ok", "-1"})
    EXPECT_EQ(resolve({"--success", "--http-status", status}), 2) << status;
  for (const char* header : {"no colon", "two words: 1", ": 1", "A: 1\r\nB: 2"})
    EXPECT_EQ(resolve({"--success", "--http-status", "201", "--http-header", header}), 2) << header;
  EXPECT_EQ(resolve({"--success", "--http-status", "201", "--http-body", body + "-none"}), 2);
  EXPECT_EQ(resolve({"--success", "--http-status", "201", "--result-text", "x"}), 2);
  EXPECT_EQ(resolve({"--success", "--http-body", body}), 2);
  EXPECT_EQ(resolve({"--failed", "--http-status", "201"}), 2);
  EXPECT_TRUE(audit().empty());
  EXPECT_EQ(resolve({"--success", "--http-status", "201", "--http-header", "Location: /payments/7",
                     "--http-header", "Content-Type:text/plain", "--http-body", body}),
            0);

  const HttpAnswer retried = pay();
  EXPECT_EQ(retried.response.status, 201);
  EXPECT_EQ(retried.response.header("Location"), "/payments/7");
  EXPECT_EQ(retried.response.header("Content-Type"), "text/plain");
  EXPECT_EQ(retried.response.body, "paid\r\n");
}

}  // namespace
}  // namespace idempotency
