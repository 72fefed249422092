#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/edges/http_answer.hpp"
#include "idempotency/edges/http_options.hpp"
#include "idempotency/operation.hpp"
#include "idempotency/patterns/token_service.hpp"
#include "idempotency/run_result.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What is to be done with a request: refuse it, run it under an operation, or (neither) pass it on.
struct HttpAdmission {
  std::optional<HttpAnswer> refusal = std::nullopt;
  std::optional<Operation> operation = std::nullopt;
  PresentedToken token = {};  ///< with a token service: what the client brought
};

/// `HttpIdempotency` without its templates.
class HttpEdge {
 public:
  explicit HttpEdge(HttpOptions options);

  [[nodiscard]] HttpAdmission admit(const HttpRequest& request) const;
  [[nodiscard]] static HttpAnswer untouched(HttpResponse response) {
    return {.response = std::move(response), .origin = HttpOrigin::untouched};
  }
  /// What the record makes of a response.
  [[nodiscard]] Disposition judge(const HttpResponse& response) const noexcept;
  /// Answers what another call has left: no handler ran.
  [[nodiscard]] HttpAnswer answer(RunResult<HttpResponse> result) const;
  /// The handler's response, with advice for the client.
  [[nodiscard]] HttpAnswer executed(HttpResponse response) const;
  [[nodiscard]] HttpAnswer problem(HttpProblem problem,
                                   std::optional<std::chrono::milliseconds> retry_after) const;
  /// Nothing for an error that is not for the client.
  [[nodiscard]] std::optional<HttpAnswer> answer(const Error& error) const;
  /// Takes the fields out that are recorded.
  [[nodiscard]] std::vector<HttpHeader> recorded(const std::vector<HttpHeader>& headers) const;

  [[nodiscard]] HttpAnswer issue_key(const HttpRequest& request) const;
  [[nodiscard]] TokenService* tokens() const noexcept { return options_.tokens; }
  [[nodiscard]] PresentedToken presented(Operation operation, PresentedToken token) const;
  [[nodiscard]] std::uint64_t passed_without_key() const noexcept {
    return passed_without_key_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::optional<std::chrono::milliseconds> store_retry_after() const noexcept {
    return options_.retry_after;
  }

 private:
  [[nodiscard]] HttpKeyUse key_use(const HttpRequest& request) const;
  [[nodiscard]] HttpAnswer without_key(const HttpRequest& request) const;
  [[nodiscard]] std::string type_of(const HttpRequest& request) const;
  [[nodiscard]] std::string issue(const HttpRequest& request) const;

  HttpOptions options_;
  mutable std::atomic<std::uint64_t> passed_without_key_{0};
};

/// One request under the guard: keeps what is sent but not recorded.
class HttpRun {
 public:
  explicit HttpRun(const HttpEdge& edge) noexcept : edge_(&edge) {}
  HttpRun(const HttpRun&) = delete;
  HttpRun& operator=(const HttpRun&) = delete;

  /// Calls the handler; gives what is to be recorded of its response.
  template <class Call>
  HttpResponse record(Call call) {
    handler_threw_ = true;  // until it has returned
    HttpResponse response = call();
    handler_threw_ = false;
    return keep(std::move(response));
  }
  [[nodiscard]] HttpAnswer answer(RunResult<HttpResponse> result);
  /// Nothing for an error that the caller should see.
  [[nodiscard]] std::optional<HttpAnswer> answer(const Error& error) const;

 private:
  HttpResponse keep(HttpResponse response);

  const HttpEdge* edge_;
  std::optional<std::vector<HttpHeader>> own_headers_;  ///< there when the handler has returned
  bool handler_threw_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
