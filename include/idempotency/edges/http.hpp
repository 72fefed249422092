#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "idempotency/detail/http_edge.hpp"
#include "idempotency/edges/http_options.hpp"
#include "idempotency/execution.hpp"
#include "idempotency/patterns/token_service.hpp"

namespace idempotency {
inline namespace v0 {

/// Makes the requests of an HTTP server take effect once for each `Idempotency-Key`, over any guard and any server library.
///
/// `handle` is a layer between a server and a handler: it reads the key, fingerprints the request, runs the handler under the guard,
/// and records and replays its response. It follows draft-ietf-httpapi-idempotency-key-header-07; every answer of its own is a
/// problem document (RFC 9457). Authenticate before it: keys belong to a principal.
///
/// It asks the store as often as `guard.run` does: once for a duplicate, twice for a first request.
///
/// Errors: the constructor throws `Errc::invalid_argument` for options that are none. `handle` throws what the handler throws, but
/// `PermanentFailure`, `RetryableFailure` and `OutcomeUnknown`, which become problem documents; and of the guard's errors those that
/// only the programmer can mend (`invalid_policy`, `invalid_argument`, `invalid_key`, `used_after_fork`).
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows the guard.
///
/// Example: see `examples/15_http_idempotency_key.cpp`.
template <class Guard>
class HttpIdempotency {
 public:
  explicit HttpIdempotency(Guard& guard, HttpOptions options = {})
      : guard_(&guard), edge_(std::move(options)) {}
  explicit HttpIdempotency(const Guard&& guard, HttpOptions options = {}) = delete;

  /// Answers `request`: with what `next` produces now, what it produced before, or a problem.
  ///
  /// `next` takes nothing, or `Execution*` (null where the request is passed on untouched), and returns an `HttpResponse`. Without
  /// `Execution*` an exception of a type that the library does not know leaves the record uncertain under `hold`.
  template <class Next>
  [[nodiscard]] HttpAnswer handle(const HttpRequest& request, Next&& next) {
    static_assert(takes_execution<Next> || std::invocable<Next&>,
                  "idempotency: the HTTP handler takes nothing or Execution*, and returns an "
                  "HttpResponse.");
    detail::HttpAdmission admission = edge_.admit(request);
    if (admission.refusal) return *std::move(admission.refusal);
    if (!admission.operation) return detail::HttpEdge::untouched(call(next, nullptr));
    detail::HttpRun run(edge_);
    try {
      if constexpr (takes_execution<Next>) {
        auto handler = [&](Execution& execution) {
          return run.record([&] { return call(next, &execution); });
        };
        return under_guard(run, std::move(admission), handler);
      } else {
        auto handler = [&] { return run.record([&] { return call(next, nullptr); }); };
        return under_guard(run, std::move(admission), handler);
      }
    } catch (const Error& error) {
      if (std::optional<HttpAnswer> answer = run.answer(error)) return *std::move(answer);
      throw;
    }
  }

  /// Issues a key to a client that has none of its own: 201, with the key in the field `Idempotency-Key` and as the member
  /// `idempotency_key` of a JSON body.
  ///
  /// Of `request` the principal counts, and what `type_of` looks at: it must say the same type as for the request to come.
  ///
  /// Errors: `Errc::invalid_argument` without `HttpOptions::tokens`.
  [[nodiscard]] HttpAnswer issue_key(const HttpRequest& request) const {
    return edge_.issue_key(request);
  }

  /// How many requests were passed on unprotected because they brought no key and none was required.
  [[nodiscard]] std::uint64_t passed_without_key() const noexcept {
    return edge_.passed_without_key();
  }

 private:
  template <class Next>
  static constexpr bool takes_execution = std::invocable<Next&, Execution*>;

  template <class Next>
  static HttpResponse call(Next& next, [[maybe_unused]] Execution* execution) {
    if constexpr (takes_execution<Next>) {
      return next(execution);
    } else {
      return next();
    }
  }

  /// The guard as a token service runs it, with the judgement of responses.
  struct JudgingGuard {
    Guard* guard;
    const detail::HttpEdge* edge;

    [[nodiscard]] Policy policy_of(const Operation& operation) const {
      return guard->policy_of(operation);
    }
    template <class Handler>
    auto run(Operation operation, Handler&& handler) {
      return guard->run(std::move(operation), std::forward<Handler>(handler),
                        [this](const HttpResponse& response) { return edge->judge(response); });
    }
  };

  template <class Handler>
  HttpAnswer under_guard(detail::HttpRun& run, detail::HttpAdmission admission, Handler& handler) {
    JudgingGuard judging{guard_, &edge_};
    if (edge_.tokens() == nullptr) {
      return run.answer(judging.run(*std::move(admission.operation), handler));
    }
    RunResult<HttpResponse> result = edge_.tokens()->run(
        judging, edge_.presented(*std::move(admission.operation), std::move(admission.token)),
        handler);
    return run.answer(std::move(result));
  }

  Guard* guard_;
  detail::HttpEdge edge_;
};

}  // namespace v0
}  // namespace idempotency
