#include "world.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "caller.hpp"
#include "idempotency/detail/planted.hpp"
#include "process.hpp"

namespace idempotency::simulation {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
constexpr std::uint32_t most_calls = 40;

}  // namespace

World::World(std::uint64_t seed, Recording recording)
    : random_(seed),
      plan_(draw_schedule(random_)),
      time_(plan_.drift_per_thousand),
      history_(recording),
      oracle_(time_, plan_, coverage_),
      store_({.max_bytes = std::size_t{1} << 20U, .clock = &time_.store_clock()}),
      faults_end_(beginning + plan_.window) {
  for (std::size_t number = 0; number < plan_.keys; ++number)
    key_texts_.push_back(key_of(number));
  for (std::size_t number = 0; number < plan_.processes; ++number) {
    processes_.push_back(std::make_unique<Process>(*this, "process " + std::to_string(number + 1)));
  }
}

World::~World() = default;

void World::run() {
  note([&] { return describe(plan_); });
  schedule_calls();
  if (plan_.operator_works) schedule_operator();
  if (plan_.purges) schedule_purge();
  run_until(SteadyTime::max());
  for (const auto& process : processes_)
    process->check_rest();
  close();
}

void World::at(SteadyTime when, std::function<void()> action) {
  events_.push_back({std::max(when, now()), random_.next(), std::move(action)});
  std::push_heap(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return std::pair(a.at, a.tie) > std::pair(b.at, b.tie);
  });
}

void World::run_until(SteadyTime limit) {
  while (!events_.empty() && events_.front().at <= limit) {
    std::pop_heap(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return std::pair(a.at, a.tie) > std::pair(b.at, b.tie);
    });
    const Event event = std::move(events_.back());
    events_.pop_back();
    time_.advance_to(event.at);
    event.action();
    after_step();
  }
  if (limit != SteadyTime::max()) time_.advance_to(limit);
}

void World::pause(std::chrono::nanoseconds span) {
  if (nested_ >= most_nested) return;
  ++nested_;
  run_until(now() + span);
  --nested_;
}

void World::after_step() {
  require(++coverage_.steps < most_steps, "everything must come to rest");
  check();
  if (!faults_are_on()) return;
  if (random_.chance(plan_.faults.crash)) crash(random_.below(processes_.size()));
  if (random_.chance(plan_.faults.freeze)) freeze(random_.below(processes_.size()));
  if (random_.chance(plan_.faults.jump)) jump();
}

void World::check() {
  for (std::size_t number = 0; number < key_texts_.size(); ++number) {
    oracle_.holds(number, store_.find(key_texts_[number]));
  }
  for (const auto& process : processes_)
    process->check_room();
}

World::Passage World::draw_passage(const Request& request) {
  if (!faults_are_on())
    return {.there = random_.between(0ms, 1ms), .back = random_.between(0ms, 1ms)};
  const Faults& faults = plan_.faults;
  const milliseconds lease = std::max(plan_.leases[0], plan_.leases[1]);
  Passage passage{.there = random_.between(0ms, 3ms), .back = random_.between(0ms, 3ms)};
  if (plan_.far_away) passage.back = random_.between(lease / 4, lease);
  if (random_.chance(faults.slow)) passage.there = random_.between(0ms, lease * 2);
  if (random_.chance(faults.slow)) passage.back = random_.between(0ms, lease * 2);
  passage.patience = passage.there + random_.between(1ms, 20ms);
  passage.late = random_.between(1ms, random_.chance(200) ? 600ms : lease * 3);
  const std::array<std::pair<Fate, std::uint32_t>, 6> fates{{
      {Fate::refused, faults.refused},
      {Fate::busy, faults.busy},
      {Fate::request_lost, faults.request_lost},
      {Fate::reply_lost, faults.reply_lost},
      {Fate::late, faults.late},
      {Fate::duplicated, faults.duplicated},
  }};
  for (const auto& [fate, permille] : fates) {
    if (!random_.chance(permille)) continue;
    passage.fate = fate;
    break;
  }
  if (passage.fate == Fate::request_lost) coverage_.count(Reached::request_lost);
  if (passage.fate == Fate::reply_lost) coverage_.count(Reached::reply_lost);
  if (passage.fate != Fate::normal) {
    constexpr std::array<const char*, 7> names{"",          "refused",      "refused as busy",
                                               "lost",      "not answered", "given up and late",
                                               "duplicated"};
    note([&] {
      return "(will be " + std::string(names[static_cast<std::size_t>(passage.fate)]) + ") " +
             describe(request);
    });
  }
  return passage;
}

void World::send(const Request& request, std::function<void(const Reply&)> done) {
  const Passage passage = draw_passage(request);
  const auto fail_with = [&](milliseconds span, Errc error) {
    after(span, [error, done] { done(Reply{error, 0}); });
  };
  switch (passage.fate) {
    case Fate::refused:
      return fail_with(passage.there, Errc::store_unavailable);
    case Fate::busy:
      return fail_with(passage.there, Errc::store_busy);
    case Fate::request_lost:
      return fail_with(passage.patience, Errc::store_reply_lost);
    case Fate::late:
      schedule_copy(request, passage.patience + passage.late);
      return fail_with(passage.patience, Errc::store_reply_lost);
    case Fate::reply_lost:
      after(passage.there,
            [this, request] { arrive(request, Copy::awaited, [](const Reply&) {}); });
      return fail_with(passage.patience, Errc::store_reply_lost);
    case Fate::duplicated:
      schedule_copy(request, passage.there + passage.late);
      break;
    case Fate::normal:
      break;
  }
  after(passage.there, [this, request, done = std::move(done), back = passage.back] {
    arrive(request, Copy::awaited,
           [this, done, back](const Reply& reply) { after(back, [done, reply] { done(reply); }); });
  });
}

Reply World::exchange(const Request& request) {
  const Passage passage = draw_passage(request);
  pause(passage.fate == Fate::late || passage.fate == Fate::request_lost ? passage.patience
                                                                         : passage.there);
  switch (passage.fate) {
    case Fate::refused:
      return {Errc::store_unavailable, 0};
    case Fate::busy:
      return {Errc::store_busy, 0};
    case Fate::request_lost:
      return {Errc::store_reply_lost, 0};
    case Fate::late:
      schedule_copy(request, passage.late);
      return {Errc::store_reply_lost, 0};
    case Fate::duplicated:
      schedule_copy(request, passage.late);
      break;
    case Fate::normal:
    case Fate::reply_lost:
      break;
  }
  const bool gap = reads_before_it_takes_over(request);
  if (gap) pause(random_.between(1ms, 6ms));
  Reply reply = gap ? take_over_blindly(request, Copy::awaited) : execute(request, Copy::awaited);
  pause(passage.back);
  if (passage.fate == Fate::reply_lost) return {Errc::store_reply_lost, 0};
  return reply;
}

void World::schedule_copy(const Request& request, milliseconds in) {
  after(in, [this, request] { arrive(request, Copy::late, [](const Reply&) {}); });
}

void World::arrive(const Request& request, Copy copy, std::function<void(const Reply&)> done) {
  if (!reads_before_it_takes_over(request)) return done(execute(request, copy));
  after(random_.between(1ms, 6ms),
        [this, request, copy, done = std::move(done)] { done(take_over_blindly(request, copy)); });
}

Reply World::execute(const Request& request, Copy copy) {
  Reply reply = call_store(request);
  note([&] {
    return std::string(copy == Copy::late ? "(a late copy) " : "") + describe(request) + ": " +
           describe(reply) + "; now " + describe(store_.find(key_texts_[request.key]));
  });
  if (copy == Copy::late) {
    coverage_.count(Reached::late_copy_executed);
    const auto* outcome = std::get_if<BeginOutcome>(&reply.content);
    if (outcome != nullptr && std::holds_alternative<Acquired>(*outcome)) {
      coverage_.count(Reached::late_copy_granted);
    }
  }
  oracle_.executed(request, reply);
  reply.life = oracle_.life(request.key);
  return reply;
}

Reply World::call_store(const Request& request) {
  const Key& key = key_texts_[request.key];
  switch (request.step) {
    case StoreStep::begin:
      return {store_.begin({.key = key,
                            .owner = request.by.owner,
                            .fingerprint = fingerprint_of(request.meaning),
                            .mode = request.mode,
                            .lease = request.lease,
                            .trace = std::to_string(request.call)}),
              0};
    case StoreStep::complete:
      return {store_.complete(key, request.by, {request.bytes, request.retention}), 0};
    case StoreStep::fail:
      return {store_.fail(key, request.by, {request.retryability, request.reason, request.bytes},
                          request.retention),
              0};
    case StoreStep::doubt:
      return {store_.doubt(key, request.by), 0};
    case StoreStep::mark_effect:
      return {store_.mark_effect(key, request.by), 0};
    case StoreStep::renew:
      return {store_.renew(key, request.by, request.lease), 0};
    case StoreStep::release:
      return {store_.release(key, request.by, request.retention), 0};
    case StoreStep::find:
      return {store_.find(key), 0};
    case StoreStep::resolve:
      return {store_.resolve(*request.seen, {.verdict = request.verdict,
                                             .result = request.bytes,
                                             .reason = request.reason,
                                             .resolver = request.by.owner,
                                             .retention = request.retention}),
              0};
  }
  return {};
}

bool World::reads_before_it_takes_over(const Request& request) {
  if (!detail::planted(detail::PlantedBug::takeover_by_read_then_write)) return false;
  if (request.step != StoreStep::begin) return false;
  const std::optional<Record> record = store_.find(key_texts_[request.key]);
  return record && record->state == RecordState::processing &&
         record->mode == RecordMode::take_over && !record->effect_marked &&
         record->ownership.owner != request.by.owner && record->lease_until <= time_.store_now();
}

/// The second half of the planted bug: the record is given to the caller whatever it holds by now, because to a clock
/// that is set far ahead its lease has run out.
Reply World::take_over_blindly(const Request& request, Copy copy) {
  constexpr milliseconds far = std::chrono::hours{24 * 365};
  const Key& key = key_texts_[request.key];
  time_.set_ahead(far);
  Reply reply = call_store(request);
  time_.set_ahead(0ms);
  if (const auto* outcome = std::get_if<BeginOutcome>(&reply.content)) {
    if (const auto* acquired = std::get_if<Acquired>(outcome)) {
      static_cast<void>(store_.renew(key, {request.by.owner, acquired->fence}, request.lease));
    }
  }
  note([&] {
    return std::string(copy == Copy::late ? "(a late copy) " : "") + describe(request) +
           ", which read before: " + describe(reply) + "; now " + describe(store_.find(key));
  });
  oracle_.executed(request, reply);
  return reply;
}

OwnerToken World::new_token() noexcept {
  OwnerToken::Bytes bytes{};
  ++tokens_;
  for (std::size_t at = 0; at < 4; ++at) {
    bytes[at] = static_cast<std::uint8_t>(tokens_ >> (24U - 8U * at));
  }
  return OwnerToken{bytes};
}

void World::schedule_calls() {
  for (std::size_t call = 0; call < plan_.calls; ++call) {
    const std::size_t process = random_.below(plan_.processes);
    const CallPlan plan = draw_call(plan_, random_);
    after(random_.between(0ms, plan_.window), [this, process, plan] { start_call(process, plan); });
  }
}

void World::start_call(std::size_t process, const CallPlan& plan) {
  Process& in = *processes_[process];
  in.run([this, &in, plan] { in.add(new_call(), plan); });
}

void World::schedule_purge() {
  after(random_.between(20ms, 80ms), [this] {
    if (!faults_are_on()) return;
    note([&] { return std::string("expired records are purged"); });
    store_.purge(all);
    oracle_.purged();
    schedule_purge();
  });
}

void World::crash(std::size_t number) {
  std::unique_ptr<Process>& process = processes_[number];
  note([&] { return process->name() + " crashes"; });
  coverage_.count(Reached::crashed);
  process->crash();
  for (const auto& caller : process->callers()) {
    if (caller->ended() || calls_ >= most_calls || !random_.chance(700)) continue;
    CallPlan plan = draw_call(plan_, random_);
    plan.key = caller->plan().key;
    plan.meaning = caller->plan().meaning;
    after(random_.between(0ms, 60ms), [this, number, plan] { start_call(number, plan); });
  }
  const std::string name = process->name() + "'";
  crashed_.push_back(std::exchange(process, std::make_unique<Process>(*this, name)));
}

void World::freeze(std::size_t number) {
  const milliseconds span = random_.between(1ms, plan_.leases[0] * 3);
  coverage_.count(Reached::frozen);
  note([&] {
    return processes_[number]->name() + " is frozen for " + std::to_string(span.count()) + " ms";
  });
  processes_[number]->freeze(now() + span);
}

void World::jump() {
  const milliseconds span = random_.between(1ms, random_.chance(200) ? 500ms : plan_.leases[0] * 2);
  const bool forward = random_.chance(600);
  if (!forward) {  // what has expired stays so
    store_.purge(all);
    oracle_.purged();
  }
  coverage_.count(Reached::clock_jumped);
  note([&] {
    return "the store's clock jumps " + std::string(forward ? "forward " : "back ") +
           std::to_string(span.count()) + " ms";
  });
  time_.jump(forward ? span : -span);
}

void World::close() {
  time_.advance_to(now() + 2s);  // no lease lives that long
  for (std::size_t number = 0; number < plan_.keys; ++number) {
    settle_what_only_the_operator_can(number);
    start_call(0, closing_call(number));
    run_until(SteadyTime::max());
    const std::optional<RunStatus> status = processes_[0]->callers().back()->status();
    const bool answered = status == RunStatus::executed || status == RunStatus::replayed ||
                          status == RunStatus::replayed_without_result ||
                          status == RunStatus::failed;
    require(answered, "no record must block for ever once it is settled");
  }
  for (const auto& process : processes_)
    process->check_rest();
  oracle_.compare(store_.statistics());
}

}  // namespace idempotency::simulation
