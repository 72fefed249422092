#include <memory>

#include "process.hpp"
#include "world.hpp"

namespace idempotency::simulation {

using namespace std::chrono_literals;

namespace {

/// What the operator decides after having asked the system that was called, about the record that it saw before.
Request resolution(const Request& look, const Record& record, std::uint64_t life,
                   std::optional<std::uint32_t> effect_by, SeededRandom& random) {
  Request request = look;
  request.step = StoreStep::resolve;
  request.seen = record;
  request.seen_life = life;
  if (effect_by) {
    request.verdict = Resolution::Verdict::succeeded;
    request.bytes = "the effect of call " + std::to_string(*effect_by);
  } else if (random.chance(600)) {
    request.verdict = Resolution::Verdict::retry;
  } else {
    request.verdict = Resolution::Verdict::failed;
    request.reason = "the operator found no effect";
  }
  return request;
}

/// Sends a resolution until it is answered, a few times.
void settle(World& world, const Request& request, int attempts_left) {
  world.send(request, [&world, request, attempts_left](const Reply& reply) {
    if (reply.error() != nullptr && attempts_left > 0) settle(world, request, attempts_left - 1);
  });
}

}  // namespace

void World::schedule_operator() {
  after(random_.between(5ms, 40ms), [this] {
    if (!faults_are_on()) return;
    Request look;
    look.step = StoreStep::find;
    look.key = random_.below(plan_.keys);
    look.by.owner = new_token();
    look.retention = random_.one_of(plan_.retentions);
    send(look, [this, look](const Reply& reply) {
      const auto* found = std::get_if<std::optional<Record>>(&reply.content);
      if (found == nullptr || !*found) return;
      const Record& record = **found;
      const bool silent =
          record.state == RecordState::processing && record.lease_until <= time_.store_now();
      if (record.state != RecordState::uncertain && !silent) return;
      after(random_.between(0ms, 40ms), [this, look, record, life = reply.life] {
        const Request request =
            resolution(look, record, life, oracle_.effect_by(look.key, life), random_);
        // The answer may take long to the store: the owner may come back, others may settle, the life may end.
        const milliseconds longest = random_.chance(200) ? 600ms : plan_.leases[0] * 3;
        after(random_.chance(500) ? 0ms : random_.between(0ms, longest),
              [this, request] { settle(*this, request, 3); });
      });
    });
    schedule_operator();
  });
}

void World::settle_what_only_the_operator_can(std::size_t key) {
  if (!oracle_.needs_operator(key)) return;
  const std::optional<Record> record = store_.find(key_texts_[key]);
  require(record.has_value(), "an unfinished record must not vanish");
  Request look;
  look.key = key;
  look.by.owner = new_token();
  look.retention = 1'000ms;
  const std::uint64_t life = oracle_.life(key);
  const Request request = resolution(look, *record, life, oracle_.effect_by(key, life), random_);
  require(execute(request, Copy::awaited).is_stored(), "what is uncertain must be settled");
}

}  // namespace idempotency::simulation
