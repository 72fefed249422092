#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "idempotency/store.hpp"
#include "idempotency/testing/printers.hpp"

namespace idempotency {
inline namespace v0 {
namespace testing {

/// What the conformance suites need of a store's author: a type that is made anew for each test.
///
/// - `store()`: a reference to the store.
/// - `advance(span)`: moves the store's clock by `span`; for a server, waits that long.
///
/// It may also have:
/// - `other_store()`: a second handle on the same records, as another process has it.
/// - `remove_deadline(key)`: takes away the lease deadline of a processing record, as damage or an older writer would.
/// - `static constexpr milliseconds clock_tolerance`: how far a time may be off where the clock cannot be stopped
///   (absent: not at all).
/// - `static constexpr milliseconds long_time`: what "very long" is; the default, 400 days, is for clocks that
///   can be moved.
/// - for `TransactionalStoreConformance`: `add_business_row(transaction)`, which writes something of the handler's own
///   within the transaction, and `business_rows()`, the number of these that are committed.
/// - for adopted transactions: `application()`, a reference to an application with a connection of its own to the
///   store's database, not the one that `business_rows()` uses: see `LendsConnection`. Without it those tests are skipped.
template <class F>
concept ConformanceFixture = std::default_initializable<F> &&
    requires(F& fixture, std::chrono::milliseconds span) {
  { fixture.store() } -> Store;
  fixture.advance(span);
};

/// Whether an outcome is of one kind; says what it is instead.
template <class Expected>
[[nodiscard]] ::testing::AssertionResult is(const BeginOutcome& outcome) {
  if (std::holds_alternative<Expected>(outcome)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "begin answered " << ::testing::PrintToString(outcome);
}

/// What a test expects `begin` to have granted.
[[nodiscard]] inline BeginOutcome acquired(std::uint64_t fence, std::uint32_t attempt) {
  return Acquired{fence, attempt};
}

/// Whether `begin` answered with this result.
[[nodiscard]] inline ::testing::AssertionResult replays(const BeginOutcome& outcome,
                                                        const std::optional<std::string>& result) {
  const Completed* completed = std::get_if<Completed>(&outcome);
  if (completed != nullptr && completed->result == result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "begin answered " << ::testing::PrintToString(outcome);
}

/// Whether `begin` answered with this failure.
[[nodiscard]] inline ::testing::AssertionResult replays(const BeginOutcome& outcome,
                                                        const Failure& failure) {
  const Failed* failed = std::get_if<Failed>(&outcome);
  if (failed != nullptr && failed->failure == failure) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "begin answered " << ::testing::PrintToString(outcome);
}

[[nodiscard]] inline Failure retryable_failure(std::string reason = "try again") {
  return {Retryability::retryable, std::move(reason), std::nullopt};
}
[[nodiscard]] inline Failure permanent_failure(std::string reason = "card declined") {
  return {Retryability::permanent, std::move(reason), std::nullopt};
}

/// How a caller of a test differs from the usual one.
struct CallerOptions {
  std::optional<Key> key = std::nullopt;  ///< absent: the test's own
  RecordMode mode = RecordMode::take_over;
  std::chrono::milliseconds lease{std::chrono::hours{1}};
  std::optional<Fingerprint> fingerprint = std::nullopt;
  std::string trace = {};
};

/// One call of `run`, as a store sees it: a token of its own, and the fence that it was granted.
template <class StoreT>
class Caller {
  using milliseconds = std::chrono::milliseconds;

 public:
  Caller(StoreT& store, BeginRequest request) : store_(&store), request_(std::move(request)) {}

  BeginOutcome begin() {
    BeginOutcome outcome = store_->begin(request_);
    if (const Acquired* granted = std::get_if<Acquired>(&outcome)) fence_ = granted->fence;
    return outcome;
  }
  WriteOutcome complete(std::optional<std::string> result = "result",
                        milliseconds retention = std::chrono::hours{1}) {
    return store_->complete(key(), by(), {std::move(result), retention});
  }
  WriteOutcome fail(const Failure& failure, milliseconds retention = std::chrono::hours{1}) {
    return store_->fail(key(), by(), failure, retention);
  }
  WriteOutcome doubt() { return store_->doubt(key(), by()); }
  WriteOutcome mark_effect() { return store_->mark_effect(key(), by()); }
  WriteOutcome renew(milliseconds lease = std::chrono::hours{1}) {
    return store_->renew(key(), by(), lease);
  }
  ReleaseOutcome release(milliseconds retention = std::chrono::hours{1}) {
    return store_->release(key(), by(), retention);
  }

  [[nodiscard]] const Key& key() const noexcept { return request_.key; }
  [[nodiscard]] Ownership by() const noexcept { return {request_.owner, fence_}; }
  [[nodiscard]] BeginRequest& request() noexcept { return request_; }
  /// Writes from now on at a fence that it was not granted.
  void pretend_fence(std::uint64_t fence) noexcept { fence_ = fence; }

 private:
  StoreT* store_;
  BeginRequest request_;
  std::uint64_t fence_ = 0;
};

/// The base of the suites: the fixture, callers, and the passing of time.
template <class FixtureT>
class ConformanceTest : public ::testing::Test {
  static_assert(ConformanceFixture<FixtureT>,
                "idempotency: a conformance suite needs a fixture that can be made without "
                "arguments and has store() and advance(milliseconds).");

 protected:
  using milliseconds = std::chrono::milliseconds;
  using StoreT = std::remove_reference_t<decltype(std::declval<FixtureT&>().store())>;

  static constexpr milliseconds tolerance = [] {
    if constexpr (requires { FixtureT::clock_tolerance; }) return FixtureT::clock_tolerance;
    return milliseconds{0};
  }();
  /// Whether the clock stands still while a test does not move it.
  static constexpr bool exact = tolerance == milliseconds{0};
  static constexpr milliseconds long_time = [] {
    if constexpr (requires { FixtureT::long_time; }) return FixtureT::long_time;
    return milliseconds{std::chrono::hours{24 * 400}};
  }();
  static constexpr milliseconds short_lease{500};

  [[nodiscard]] FixtureT& fixture() noexcept { return fixture_; }
  [[nodiscard]] StoreT& store() { return fixture_.store(); }
  /// A second handle on the same records where the fixture has one.
  [[nodiscard]] auto& other_store() {
    if constexpr (requires { fixture_.other_store(); }) {
      return fixture_.other_store();
    } else {
      return fixture_.store();
    }
  }

  /// A business type that no other test uses, so that a server may be shared by many runs.
  [[nodiscard]] const std::string& type() const noexcept { return type_; }
  [[nodiscard]] Key key(std::string_view value = "order-1") const { return Key(type_, value); }

  /// A new call, with a token of its own.
  [[nodiscard]] Caller<StoreT> caller(const CallerOptions& options = {}) {
    return caller_of(store(), options);
  }
  template <class S>
  [[nodiscard]] Caller<S> caller_of(S& store, const CallerOptions& options = {}) {
    return Caller<S>(store, {.key = options.key ? *options.key : key(),
                             .owner = OwnerToken::generate(),
                             .fingerprint = options.fingerprint,
                             .mode = options.mode,
                             .lease = options.lease,
                             .trace = options.trace});
  }
  /// A call that has begun.
  [[nodiscard]] Caller<StoreT> owner(const CallerOptions& options = {}) {
    Caller<StoreT> call = caller(options);
    EXPECT_TRUE(is<Acquired>(call.begin()));
    return call;
  }

  [[nodiscard]] std::optional<Record> find() { return store().find(key()); }
  /// The record; without one the test ends and has failed.
  [[nodiscard]] Record record() { return record(key()); }
  [[nodiscard]] Record record(const Key& of) {
    std::optional<Record> found = store().find(of);
    if (!found) throw std::runtime_error("the store has no record for " + of.text());
    return *std::move(found);
  }

  void advance(milliseconds span) { fixture_.advance(span); }
  /// To the last moment at which `span` is surely not over; false when the clock is too coarse to say so.
  [[nodiscard]] bool advance_to_just_before(milliseconds span) {
    const milliseconds before = span - milliseconds{1} - tolerance;
    if (before < milliseconds{0}) return false;
    advance(before);
    return true;
  }
  /// From just before the end of `span` to its end.
  void advance_over(milliseconds span) {
    const milliseconds before = span - milliseconds{1} - tolerance;
    advance(before < milliseconds{0} ? span + tolerance : milliseconds{1} + tolerance + tolerance);
  }
  [[nodiscard]] static ::testing::AssertionResult near(milliseconds actual, milliseconds expected) {
    if (actual <= expected && actual >= expected - tolerance) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << actual.count() << " ms, expected " << expected.count()
                                         << " ms or up to " << tolerance.count() << " ms less";
  }

 private:
  static std::string new_type() {
    const OwnerToken::Bytes bytes = OwnerToken::generate().bytes();
    return "conformance-" + detail::hex_of(bytes.data(), 8);
  }

  FixtureT fixture_;
  std::string type_ = new_type();
};

/// The rules that every store keeps.
template <class FixtureT>
class StoreConformance : public ConformanceTest<FixtureT> {};

TYPED_TEST_SUITE_P(StoreConformance);

}  // namespace testing
}  // namespace v0
}  // namespace idempotency
