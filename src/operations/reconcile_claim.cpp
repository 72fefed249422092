#include "operations/reconcile_claim.hpp"

#include <string_view>
#include <utility>
#include <variant>

#include "idempotency/operations/reconciler.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds shortest{1};
constexpr std::size_t page_size = 500;

std::string hex_of(const OwnerToken& owner) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : owner.bytes()) {
    text += digits[byte >> 4U];
    text += digits[byte & 0x0fU];
  }
  return text;
}

/// The key that `Key::text` gave; nothing for another text.
std::optional<Key> key_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  try {
    return Key(text.substr(0, colon), text.substr(colon + 1));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<Timestamp> silent_since(const Record& record) noexcept {
  if (record.key.type() == Reconciler::record_type) return std::nullopt;
  if (record.state == RecordState::uncertain) return record.updated_at;
  if (record.state != RecordState::processing) return std::nullopt;
  const bool holds = record.mode == RecordMode::hold || record.effect_marked;
  return holds ? record.lease_until : std::nullopt;
}

Key claim_key_of(const Record& open) {
  return Key::digested(Reconciler::record_type, open.key.text() + ' ' +
                                                    hex_of(open.ownership.owner) + ' ' +
                                                    std::to_string(open.ownership.fence));
}

ReconcileClaims::ReconcileClaims(AnyStore& store)
    : store_(&store),
      clock_key_(Reconciler::record_type, "clock:" + hex_of(OwnerToken::generate())) {}

Timestamp ReconcileClaims::now() {
  constexpr int most_rounds = 10;
  for (int round = 0; round < most_rounds; ++round) {
    const ClaimAttempt attempt = take(clock_key_, {}, std::chrono::seconds{1});
    if (attempt.claim) {
      static_cast<void>(close(*attempt.claim));  // it is used again, and swept after this process
      return attempt.claim->taken_at;
    }
    // The one before is not gone yet: its last change is as good, and not later than now.
    if (const auto before = twice([&] { return store_->find(clock_key_); })) {
      return before->updated_at;
    }
  }
  throw Error(Errc::store_busy, "the store's clock could not be read; ask again");
}

ClaimAttempt ReconcileClaims::take(const Key& key, const std::string& trace, milliseconds lease) {
  const BeginRequest request{.key = key,
                             .owner = OwnerToken::generate(),
                             .mode = RecordMode::take_over,
                             .lease = lease,
                             .trace = trace};
  const BeginOutcome outcome = twice([&] { return store_->begin(request); });
  if (const auto* other = std::get_if<InProgress>(&outcome)) return {{}, other->lease_remaining};
  if (const auto* parked = std::get_if<Failed>(&outcome)) return {{}, parked->retention_remaining};
  if (const auto* closed = std::get_if<Completed>(&outcome)) {
    return {{}, closed->retention_remaining};
  }
  const auto* acquired = std::get_if<Acquired>(&outcome);
  if (acquired == nullptr) return {{}, lease};  // somebody has meddled with it: leave it alone
  const Ownership by{request.owner, acquired->fence};
  const std::optional<Record> own = twice([&] { return store_->find(key); });
  if (!own || own->ownership != by) return {{}, shortest};  // the lease has run out meanwhile
  return {ReconcileClaim{key, by, acquired->attempt, own->updated_at}, milliseconds{0}};
}

void ReconcileClaims::rest(const ReconcileClaim& claim, milliseconds pause) {
  try {
    static_cast<void>(twice([&] { return store_->renew(claim.key, claim.by, pause); }));
  } catch (const Error&) {  // the lease that it has is a pause as well
    return;
  }
}

void ReconcileClaims::park(const ReconcileClaim& claim, const std::string& why, milliseconds span) {
  Failure failure{.retryability = Retryability::permanent, .reason = why, .result = std::nullopt};
  if (failure.reason.size() > Failure::max_reason_bytes) {
    failure.reason.resize(Failure::max_reason_bytes);
  }
  static_cast<void>(twice([&] { return store_->fail(claim.key, claim.by, failure, span); }));
}

bool ReconcileClaims::close(const ReconcileClaim& claim) {
  try {
    const auto end = [&] {
      return store_->complete(claim.key, claim.by, {std::nullopt, shortest});
    };
    static_cast<void>(twice(end));  // lost: another has it, and closes it
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool ReconcileClaims::sweep() {
  bool is_all = true;
  const RecordFilter own{.type = std::string(Reconciler::record_type),
                         .state = RecordState::processing};
  std::optional<Timestamp> now;
  std::string cursor;
  do {
    const RecordPage page = store_->admin()->list(own, cursor, page_size);
    for (const Record& record : page.records) {
      if (!record.lease_until || record.key == clock_key_) continue;
      if (!is_left_behind(record)) continue;
      if (!now) now = this->now();
      const bool is_over = *record.lease_until <= *now;
      const auto attempt = is_over ? take(record.key, {}, milliseconds{1'000}) : ClaimAttempt{};
      if (!attempt.claim || !close(*attempt.claim)) is_all = false;
    }
    cursor = page.cursor;
  } while (!cursor.empty());
  return is_all;
}

bool ReconcileClaims::is_left_behind(const Record& own) {
  const std::optional<Key> about = key_of(own.trace);
  if (!about) return true;  // a clock's
  try {
    const std::optional<Record> record = store_->find(*about);
    return !record || !silent_since(*record) || claim_key_of(*record) != own.key;
  } catch (const Error& error) {
    if (error.code() != Errc::store_corrupt) throw;
    return false;  // it cannot be read: somebody has to look at it first
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
