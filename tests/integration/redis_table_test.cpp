// What the scripts do to a record, compared with `transition()`: every state, event, standing, lease and mode.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "idempotency/stores/redis.hpp"
#include "idempotency/testing/printers.hpp"
#include "idempotency/transition.hpp"
#include "redis/redis_record.hpp"
#include "redis/redis_scripts.hpp"
#include "support/redis_server.hpp"
#include "support/redis_stand_in.hpp"

namespace idempotency {
namespace {

using detail::redis::StoredRecord;
using detail::redis::unfinished_ttl;
using std::chrono::milliseconds;
using testing_support::RedisServer;
using testing_support::RedisStandIn;

constexpr std::array events{Event::begin,          Event::begin_issued,    Event::issue,
                            Event::renew,          Event::mark_effect,     Event::complete,
                            Event::fail_retryable, Event::fail_permanent,  Event::doubt,
                            Event::release,        Event::resolve_success, Event::resolve_failed,
                            Event::resolve_retry};
constexpr std::array phases{
    Phase::absent,           Phase::processing, Phase::success, Phase::failed_retryable,
    Phase::failed_permanent, Phase::uncertain,  Phase::issued};

constexpr std::uint64_t fence_before = 5;
constexpr milliseconds lease_asked{100'000};
constexpr milliseconds retention_asked{200'000};

OwnerToken token(std::uint8_t byte) {
  OwnerToken::Bytes bytes{};
  bytes.fill(byte);
  return OwnerToken(bytes);
}
const OwnerToken owner_before = token(0x11);
const OwnerToken another = token(0x22);
const OwnerToken resolver = token(0x33);

/// How the mode comes to be what it is: a mark under `take_over` counts as `hold`.
enum class Marking { none, effect };

struct Situation {
  Phase phase;
  Event event;
  Standing standing;
  LeaseStatus lease;
  RecordMode mode;
  Marking marking;
};

std::string text_of(const Situation& s) {
  return "phase " + std::to_string(static_cast<int>(s.phase)) + ", event " +
         std::to_string(static_cast<int>(s.event)) +
         (s.standing == Standing::current ? ", current" : ", other") +
         (s.lease == LeaseStatus::run_out ? ", run out, " : ", running, ") +
         std::string(to_string(s.mode)) + (s.marking == Marking::effect ? ", marked" : "");
}

Phase phase_of(const std::optional<Record>& record) {
  if (!record) return Phase::absent;
  switch (record->state) {
    case RecordState::processing:
      return Phase::processing;
    case RecordState::success:
      return Phase::success;
    case RecordState::uncertain:
      return Phase::uncertain;
    case RecordState::issued:
      return Phase::issued;
    case RecordState::failed:
      return record->failure->retryability == Retryability::retryable ? Phase::failed_retryable
                                                                      : Phase::failed_permanent;
  }
  return Phase::absent;
}

std::string redis_key(const Key& key) { return "idempotency:{" + key.text() + "}"; }

/// Puts a record there as if it had come to be so.
void plant(const Key& key, const Situation& s) {
  RedisServer& server = RedisServer::shared();
  server.ask({"DEL", redis_key(key)});
  if (s.phase == Phase::absent) return;
  const milliseconds now{std::stoll(server.ask({"TIME"})->element[0]->str) * 1000};
  StoredRecord record;
  record.ownership = {owner_before, fence_before};
  record.attempt = 3;
  record.mode = s.mode;
  record.effect_marked = s.marking == Marking::effect;
  record.times = {Timestamp{now - milliseconds{60'000}}, Timestamp{now - milliseconds{30'000}}};
  record.trace = "planted";
  milliseconds ttl = unfinished_ttl;
  switch (s.phase) {
    case Phase::processing:
      record.lease = milliseconds{20'000};
      ttl -= milliseconds{s.lease == LeaseStatus::run_out ? 20'000 : 10'000};
      break;
    case Phase::uncertain:
      record.state = RecordState::uncertain;
      break;
    default:
      ttl = milliseconds{600'000};
      record.retention = ttl;
      record.state = s.phase == Phase::success  ? RecordState::success
                     : s.phase == Phase::issued ? RecordState::issued
                                                : RecordState::failed;
      if (s.phase == Phase::success) {
        record.result = "planted";
        record.times = std::nullopt;
        record.took = milliseconds{30'000};
        record.end_mark = detail::redis::end_mark_of(Timestamp{now + ttl}, ttl);
      }
      if (s.phase == Phase::failed_permanent) record.retryability = Retryability::permanent;
      break;
  }
  server.ask({"SET", redis_key(key), encode(record), "PX", std::to_string(ttl.count())});
}

Answer answer_of(const BeginOutcome& outcome) {
  struct Visitor {
    Answer operator()(const Acquired&) const { return Answer::acquired; }
    Answer operator()(const InProgress&) const { return Answer::in_progress; }
    Answer operator()(const Completed&) const { return Answer::completed; }
    Answer operator()(const Failed&) const { return Answer::failed; }
    Answer operator()(const Uncertain&) const { return Answer::uncertain; }
    Answer operator()(const Mismatch&) const { return Answer::lost; }
    Answer operator()(const NotIssued&) const { return Answer::lost; }
  };
  return std::visit(Visitor{}, outcome);
}

Answer answer_of(WriteOutcome outcome) {
  return outcome == WriteOutcome::stored ? Answer::stored : Answer::lost;
}

OwnerToken caller_of(const Situation& s) {
  if (s.event >= Event::resolve_success && s.event <= Event::resolve_retry) return resolver;
  return s.standing == Standing::current ? owner_before : another;
}

Answer perform(RedisStore& store, const Key& key, const Situation& s,
               const std::optional<Record>& before) {
  const Ownership by{caller_of(s), fence_before};
  const auto resolve = [&](Resolution::Verdict verdict) {
    Record seen = before.value_or(Record{.key = key});
    if (s.standing == Standing::other) ++seen.ownership.fence;
    return answer_of(store.resolve(
        seen, {.verdict = verdict, .resolver = resolver, .retention = retention_asked}));
  };
  switch (s.event) {
    case Event::begin:
      try {
        return answer_of(store.begin(
            {.key = key, .owner = by.owner, .mode = RecordMode::take_over, .lease = lease_asked}));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::store_refused) << error.detail();
        return Answer::lost;
      }
    case Event::renew:
      return answer_of(store.renew(key, by, lease_asked));
    case Event::mark_effect:
      return answer_of(store.mark_effect(key, by));
    case Event::complete:
      return answer_of(store.complete(key, by, {"new", retention_asked}));
    case Event::fail_retryable:
      return answer_of(
          store.fail(key, by, {Retryability::retryable, "new", std::nullopt}, retention_asked));
    case Event::fail_permanent:
      return answer_of(
          store.fail(key, by, {Retryability::permanent, "new", std::nullopt}, retention_asked));
    case Event::doubt:
      return answer_of(store.doubt(key, by));
    case Event::release:
      return store.release(key, by, retention_asked) == ReleaseOutcome::released ? Answer::stored
                                                                                 : Answer::lost;
    case Event::resolve_success:
      return resolve(Resolution::Verdict::succeeded);
    case Event::resolve_failed:
      return resolve(Resolution::Verdict::failed);
    case Event::resolve_retry:
      return resolve(Resolution::Verdict::retry);
    case Event::begin_issued:
      return answer_of(store.begin({.key = key,
                                    .owner = by.owner,
                                    .mode = RecordMode::take_over,
                                    .lease = lease_asked,
                                    .trace = "new",
                                    .admission = Admission::issued}));
    case Event::issue:
      return answer_of(store.issue({key, by.owner, retention_asked}));
  }
  return Answer::lost;
}

bool is_finished(Phase phase) {
  return phase == Phase::success || phase == Phase::failed_retryable ||
         phase == Phase::failed_permanent || phase == Phase::issued;
}

void expect_time_to_live(const Key& key, const Situation& s, const Transition& step) {
  const milliseconds ttl{RedisServer::shared().number({"PTTL", redis_key(key)})};
  const milliseconds slack{15'000};
  milliseconds expected = unfinished_ttl;
  if (step.to == s.phase && step.lease != LeaseStep::start) {
    expected = s.phase == Phase::processing  ? unfinished_ttl - milliseconds{10'000}
               : s.phase == Phase::uncertain ? unfinished_ttl
                                             : milliseconds{600'000};
  } else if (is_finished(step.to)) {
    expected = retention_asked;
  }
  EXPECT_LE(ttl, expected) << text_of(s);
  EXPECT_GE(ttl, expected - slack) << text_of(s);
}

void expect_as_in_the_table(RedisStore& store, const Situation& s) {
  const Key key{"table", "row"};
  plant(key, s);
  const std::optional<Record> before = store.find(key);
  const RecordMode mode = s.marking == Marking::effect ? RecordMode::hold : s.mode;
  const Transition step = transition(s.phase, s.event, s.standing, s.lease, mode);

  const Answer answer = perform(store, key, s, before);

  const std::optional<Record> after = store.find(key);
  EXPECT_EQ(answer, step.answer) << text_of(s);
  ASSERT_EQ(phase_of(after), step.to) << text_of(s);
  if (!after) return;
  Ownership expected{owner_before, fence_before};
  if (step.owner == OwnerStep::caller) expected.owner = caller_of(s);
  if (step.fence == FenceStep::first) expected.fence = 1;
  if (step.fence == FenceStep::next) ++expected.fence;
  if (step.to == Phase::issued && s.phase == Phase::absent) expected.fence = 0;
  if (step.to == Phase::success) expected.owner = detail::redis::kept_of(expected.owner);
  EXPECT_EQ(after->ownership, expected) << text_of(s);
  expect_time_to_live(key, s, step);
  if (s.phase == Phase::absent) return;
  if (step.fence == FenceStep::first) {  // a life begins: nothing is left of what was planted
    EXPECT_EQ(after->trace, "new") << text_of(s);
    EXPECT_EQ(after->attempt, 1U) << text_of(s);
    EXPECT_GT(after->created_at, before->created_at) << text_of(s);
    EXPECT_FALSE(after->effect_marked) << text_of(s);
    return;
  }
  EXPECT_EQ(after->created_at, before->created_at) << text_of(s);
  EXPECT_EQ(after->trace, "planted") << text_of(s);
  const bool let_in = step.owner == OwnerStep::caller && s.event <= Event::begin_issued;
  EXPECT_EQ(after->attempt, let_in ? 4U : 3U) << text_of(s);
  EXPECT_EQ(after->mode, let_in ? RecordMode::take_over : s.mode) << text_of(s);
  const bool marks = s.event == Event::mark_effect && step.answer == Answer::stored;
  EXPECT_EQ(after->effect_marked, !let_in && (marks || s.marking == Marking::effect)) << text_of(s);
  const bool changes = step.to != s.phase || step.owner == OwnerStep::caller;
  EXPECT_EQ(after->updated_at == before->updated_at, !changes) << text_of(s);
  if (s.phase == Phase::success) {
    EXPECT_EQ(after->result, "planted") << text_of(s);
  }
}

int expect_every_situation_as_in_the_table(RedisStore& store) {
  int situations = 0;
  for (const Phase phase : phases) {
    for (const Event event : events) {
      for (const Standing standing : {Standing::other, Standing::current}) {
        for (const LeaseStatus lease : {LeaseStatus::running, LeaseStatus::run_out}) {
          for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
            for (const Marking marking : {Marking::none, Marking::effect}) {
              expect_as_in_the_table(store, {phase, event, standing, lease, mode, marking});
              ++situations;
              if (::testing::Test::HasFailure()) return situations;
            }
          }
        }
      }
    }
  }
  return situations;
}

TEST(RedisScripts, DecideAsTheTransitionTableInEverySituation) {
  RedisStore store(RedisServer::shared().options());

  EXPECT_EQ(expect_every_situation_as_in_the_table(store), 7 * 13 * 16);
}

// RD-13: the scripts for servers before 7.0, which run on newer ones as well
TEST(RedisScripts, DecideAsTheTransitionTableInTheirOlderForm) {
  const auto older = RedisStandIn::of_version(RedisServer::shared().port(), "6.0.16");
  RedisStore store(RedisOptions{.port = older->port()});

  EXPECT_EQ(expect_every_situation_as_in_the_table(store), 7 * 13 * 16);
}

// The server of the tests is a Redis 7; the scripts for 6 must at least agree with those for 7 on it.
TEST(RedisScripts, AgreeInTheirOlderForm) {
  using detail::redis::Dialect;
  using detail::redis::script;
  using detail::redis::ScriptName;
  RedisServer& server = RedisServer::shared();
  const Key key{"table", "older"};
  const std::string name = redis_key(key);
  server.ask({"DEL", name});
  const BeginRequest request{.key = key, .owner = owner_before, .lease = milliseconds{1'000}};
  const std::string first = detail::redis::first_value(request);
  const std::string owner(reinterpret_cast<const char*>(owner_before.bytes().data()), 16);
  const auto begin = [&] {
    return server.ask({"EVAL", script(ScriptName::begin, Dialect::before_7_0).body(), "1", name,
                       first, owner, "1000", "0", "", "", "0"});
  };

  const RedisServer::Reply acquired = begin();
  const RedisServer::Reply older =
      server.ask({"EVAL", script(ScriptName::find, Dialect::before_7_0).body(), "1", name});
  const RedisServer::Reply newer =
      server.ask({"EVAL", script(ScriptName::find, Dialect::since_7_0).body(), "1", name});

  ASSERT_EQ(acquired->type, REDIS_REPLY_ARRAY) << acquired->str;
  EXPECT_EQ(acquired->element[0]->integer, static_cast<int>(Answer::acquired));
  EXPECT_EQ(server.text({"GET", name}), first);
  ASSERT_EQ(older->type, REDIS_REPLY_ARRAY) << older->str;
  EXPECT_EQ(older->element[1]->integer, newer->element[1]->integer);
  EXPECT_EQ(begin()->element[0]->integer, static_cast<int>(Answer::acquired)) << "its own again";
  const RedisServer::Reply completed = server.ask(
      {"EVAL", script(ScriptName::write, Dialect::before_7_0).body(), "1", name,
       std::to_string(static_cast<int>(Event::complete)), owner, "1", "60000", "", "1", "result"});
  ASSERT_EQ(completed->type, REDIS_REPLY_ARRAY) << completed->str;
  EXPECT_EQ(completed->element[0]->integer, static_cast<int>(Answer::stored));
  EXPECT_EQ(detail::redis::decode(server.text({"GET", name})).result, "result");
}

// What C++ writes and what the scripts write are one format.
TEST(RedisScripts, WriteTheLayoutThatIsDocumented) {
  RedisStore store(RedisServer::shared().options());
  RedisServer& server = RedisServer::shared();
  const Key key{"table", "layout"};
  server.ask({"DEL", redis_key(key)});
  const Fingerprint fingerprint = Fingerprint::of_bytes("100 cents");
  ASSERT_EQ(store.begin({.key = key,
                         .owner = owner_before,
                         .fingerprint = fingerprint,
                         .lease = milliseconds{30'000},
                         .trace = std::string(200, 't')}),
            BeginOutcome(Acquired{1, 1}));
  const std::string reason(300, 'r');
  ASSERT_EQ(store.fail(key, {owner_before, 1}, {Retryability::permanent, reason, "encoded"},
                       retention_asked),
            WriteOutcome::stored);

  const std::string value = server.text({"GET", redis_key(key)});

  const StoredRecord record = detail::redis::decode(value);
  EXPECT_EQ(encode(record), value);
  EXPECT_EQ(record.reason, reason);
  EXPECT_EQ(record.result, "encoded");
  EXPECT_EQ(record.trace, std::string(200, 't'));
  EXPECT_EQ(record.fingerprint, fingerprint.current());
  EXPECT_EQ(record.retention, retention_asked);
}

/// One way to a success: what its begin said, whether a script has touched it before, whether it has a result.
struct Way {
  std::optional<Fingerprint> fingerprint = std::nullopt;
  std::string trace = {};
  RecordMode mode = RecordMode::take_over;
  bool renewed = false;
  std::optional<std::string> result = std::string(300, 'r');
};

void expect_success_as_the_library_would(RedisStore& store, const Way& way,
                                         milliseconds retention) {
  RedisServer& server = RedisServer::shared();
  const Key key{"table", "success"};
  const std::string name = redis_key(key);
  server.ask({"DEL", name});
  ASSERT_EQ(store.begin({.key = key,
                         .owner = owner_before,
                         .fingerprint = way.fingerprint,
                         .mode = way.mode,
                         .trace = way.trace}),
            BeginOutcome(Acquired{1, 1}));
  const std::optional<Record> begun = store.find(key);
  if (way.renewed) {
    ASSERT_EQ(store.renew(key, {owner_before, 1}, lease_asked), WriteOutcome::stored);
  }
  ASSERT_EQ(store.complete(key, {owner_before, 1}, {way.result, retention}), WriteOutcome::stored);

  const std::string value = server.text({"GET", name});
  const milliseconds end{server.number({"PEXPIRETIME", name})};

  const StoredRecord record = detail::redis::decode(value);
  EXPECT_EQ(encode(record), value);
  EXPECT_EQ(record.retention, retention);
  EXPECT_EQ(record.end_mark, detail::redis::end_mark_of(Timestamp{end}, retention));
  const std::optional<Record> found = store.find(key);
  ASSERT_TRUE(begun && found);
  EXPECT_EQ(found->ownership, (Ownership{detail::redis::kept_of(owner_before), 1}));
  EXPECT_EQ(found->attempt, 1U);
  EXPECT_EQ(found->mode, way.mode);
  EXPECT_EQ(found->created_at, begun->created_at);
  EXPECT_EQ(found->updated_at, found->created_at + record.took);
  EXPECT_EQ(found->expires_at, found->updated_at + retention);
  EXPECT_EQ(found->fingerprint, begun->fingerprint);
  EXPECT_EQ(found->trace, way.trace);
  EXPECT_EQ(found->result, way.result);
  EXPECT_EQ(store.complete(key, {owner_before, 1}, {"again", retention}), WriteOutcome::stored);
  EXPECT_EQ(store.complete(key, {another, 1}, {"again", retention}), WriteOutcome::lost);
  EXPECT_EQ(server.text({"GET", name}), value);
}

TEST(RedisScripts, WriteASuccessAsTheLibraryWould) {
  const auto older = RedisStandIn::of_version(RedisServer::shared().port(), "6.0.16");
  RedisStore newest(RedisServer::shared().options());
  RedisStore oldest(RedisOptions{.port = older->port()});
  const Fingerprint fingerprint = Fingerprint::of_bytes("100 cents");
  for (RedisStore* store : {&newest, &oldest}) {
    for (const milliseconds retention :
         {milliseconds{60'000}, milliseconds{100'001}, milliseconds{3'600'000},
          milliseconds{7'776'000'000}, milliseconds{31'536'000'000}, unfinished_ttl}) {
      for (const Way& way :
           {Way{}, Way{.mode = RecordMode::hold}, Way{.result = std::nullopt}, Way{.result = ""},
            Way{.fingerprint = fingerprint},
            Way{.fingerprint = fingerprint, .result = std::nullopt}, Way{.trace = "r1"},
            Way{.fingerprint = fingerprint, .trace = "r1"}, Way{.renewed = true},
            Way{.fingerprint = fingerprint, .renewed = true}}) {
        expect_success_as_the_library_would(*store, way, retention);
      }
    }
  }
}

// The usual completion takes a way of its own through the script; strangers and odd values must not.
TEST(RedisScripts, CompleteOnlyWhatTheCallerOwnsAndCanBeRead) {
  RedisStore store(RedisServer::shared().options());
  RedisServer& server = RedisServer::shared();
  const Key key{"table", "odd"};
  const std::string name = redis_key(key);
  const std::string first =
      detail::redis::first_value({.key = key, .owner = owner_before, .lease = lease_asked});
  const auto complete = [&](const std::string& value, const Ownership& by) {
    server.ask({"SET", name, value, "PX", std::to_string(unfinished_ttl.count())});
    return store.complete(key, by, {"result", retention_asked});
  };

  EXPECT_EQ(complete(first, {another, 1}), WriteOutcome::lost);
  EXPECT_EQ(complete(first, {owner_before, 2}), WriteOutcome::lost);
  EXPECT_EQ(server.text({"GET", name}), first);
  std::string later = first;
  later[0] = static_cast<char>(later[0] | 0x40 | 0x80);
  for (const std::string& odd : {std::string(), first.substr(0, 1), first.substr(0, 16),
                                 first.substr(0, 17), first.substr(0, 18), later}) {
    EXPECT_THROW(static_cast<void>(complete(odd, {owner_before, 1})), Error);
    EXPECT_EQ(server.text({"GET", name}), odd);
  }
  EXPECT_EQ(complete(first, {owner_before, 1}), WriteOutcome::stored);
  server.ask({"SET", name, first});  // without a time to live
  EXPECT_EQ(store.complete(key, {owner_before, 1}, {"result", retention_asked}),
            WriteOutcome::stored);
  EXPECT_EQ(store.find(key)->expires_at, store.find(key)->updated_at + retention_asked);
}

}  // namespace
}  // namespace idempotency
