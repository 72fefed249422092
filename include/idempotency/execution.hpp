#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "idempotency/codec.hpp"
#include "idempotency/key.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

/// What an `Execution` asks of the engine.
class ExecutionPort {
 public:
  ExecutionPort() = default;
  ExecutionPort(const ExecutionPort&) = delete;
  ExecutionPort& operator=(const ExecutionPort&) = delete;
  virtual ~ExecutionPort() = default;

  virtual std::stop_token stop_token() = 0;
  virtual void point_of_no_return() = 0;
  virtual std::optional<std::string> find_step(std::string_view name) = 0;
  /// Records a step's result; gives the one that counts when another was first.
  virtual std::optional<std::string> record_step(std::string_view name, std::string result) = 0;
};

}  // namespace detail

/// What a handler may know and say of the run it is in; taken as `Execution&`.
///
/// Thread safety: `key`, `fence`, `attempt`, `derived_key` and `stop_token` may be called concurrently; the rest belongs
/// to the thread of the handler.
/// Lifetime: ends when the handler returns.
class Execution {
 public:
  Execution(const Key& key, std::uint64_t fence, std::uint32_t attempt,
            detail::ExecutionPort& port) noexcept
      : key_(&key), port_(&port), fence_(fence), attempt_(attempt) {}
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  [[nodiscard]] const Key& key() const noexcept { return *key_; }

  /// Rises with every run let in for this record. Hand it to a system that can refuse an older one.
  /// 0 when the run is unprotected.
  [[nodiscard]] std::uint64_t fence() const noexcept { return fence_; }

  /// How many runs this record has let in, counting this one. 0 when the run is unprotected.
  [[nodiscard]] std::uint32_t attempt() const noexcept { return attempt_; }

  /// Asked to stop when the lease is lost or about to end unrenewed. A handler that runs for longer than a lease should
  /// look at it before each effect.
  [[nodiscard]] std::stop_token stop_token() const { return port_->stop_token(); }

  /// From here on an exception means "the effect may have happened" instead of "try again".
  ///
  /// Call it right before the effect on the outside. Under `take_over` it writes to the store and returns only
  /// when that is stored; under `hold` it costs nothing.
  ///
  /// Errors: `Errc::lease_lost` when another may own the operation by now; a store error when the mark could not be
  /// stored. Let both pass: the effect has not been started.
  void point_of_no_return() { port_->point_of_no_return(); }

  /// A key for another system's own idempotency, the same on every attempt: `name`, '-' and 32 hex digits.
  ///
  /// Errors: `Errc::invalid_argument` unless `name` is 1 to 64 letters, digits, '_', '-' or '.'.
  [[nodiscard]] std::string derived_key(std::string_view name) const;

  /// Runs `fn` unless an earlier attempt has recorded this step, and gives its result.
  ///
  /// The result is a record of its own (value `step:...`, of the key's type), kept for at least a year and used within this
  /// record's life only. A result that cannot be encoded is given back unrecorded. A crash between the end of `fn` and the recording
  /// runs `fn` again in the next attempt, so `fn` needs a derived key where that matters.
  ///
  /// Errors: those of `fn`, of the store, and `Errc::codec_mismatch` when the step was recorded as another type.
  template <class Fn>
  auto step(std::string_view name, Fn&& fn) -> std::invoke_result_t<Fn&> {
    using Result = std::invoke_result_t<Fn&>;
    static_assert(Encodable<Result>,
                  "idempotency: the result of a step needs a Codec: specialise idempotency::Codec "
                  "for it beside the type, for example from JsonCodec.");
    if constexpr (Encodable<Result>) {
      if (std::optional<std::string> recorded = port_->find_step(name)) {
        return decode_result<Result>(*recorded);
      }
      if constexpr (std::is_void_v<Result>) {
        std::forward<Fn>(fn)();
        static_cast<void>(port_->record_step(name, encode_result<void>()));
      } else {
        Result result = std::forward<Fn>(fn)();
        std::optional<std::string> encoded;
        try {
          encoded = encode_result<Result>(result);
        } catch (const std::exception&) {  // it is done: not recording it only costs a repetition
          return result;
        }
        std::optional<std::string> first = port_->record_step(name, *std::move(encoded));
        if (first) return decode_result<Result>(*first);
        return result;
      }
    } else {
      return std::forward<Fn>(fn)();
    }
  }

 private:
  const Key* key_;
  detail::ExecutionPort* port_;
  std::uint64_t fence_;
  std::uint32_t attempt_;
};

/// What `Execution::derived_key(name)` gives for `key`: for the reconciler that asks the other system.
[[nodiscard]] std::string derived_key(const Key& key, std::string_view name);

}  // namespace v0
}  // namespace idempotency
