#include "idempotency/detail/http_edge.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "edges/http_text.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

using std::chrono::milliseconds;

namespace {

constexpr std::size_t longest_key_allowed = 4096;
constexpr std::array all_problems{HttpProblem::key_missing,      HttpProblem::key_malformed,
                                  HttpProblem::key_not_issued,   HttpProblem::principal_missing,
                                  HttpProblem::body_too_large,   HttpProblem::key_reused,
                                  HttpProblem::in_progress,      HttpProblem::store_unavailable,
                                  HttpProblem::outcome_unknown,  HttpProblem::result_not_kept,
                                  HttpProblem::failed,           HttpProblem::failed_for_now,
                                  HttpProblem::record_unreadable};

/// Credentials, what belongs to one connection or one message, and what the edge says itself.
constexpr std::array<std::string_view, 23> never_replayed{"Set-Cookie",
                                                          "Set-Cookie2",
                                                          "Cookie",
                                                          "Authorization",
                                                          "WWW-Authenticate",
                                                          "Authentication-Info",
                                                          "Authentication-Control",
                                                          "Optional-WWW-Authenticate",
                                                          "Proxy-Authenticate",
                                                          "Proxy-Authorization",
                                                          "Proxy-Authentication-Info",
                                                          "Connection",
                                                          "Keep-Alive",
                                                          "Proxy-Connection",
                                                          "TE",
                                                          "Trailer",
                                                          "Transfer-Encoding",
                                                          "Upgrade",
                                                          "Content-Length",
                                                          "Idempotent-Replayed",
                                                          "Idempotency-Key",
                                                          "Idempotency-Advice",
                                                          "Date"};

[[noreturn]] void refuse(const char* message, std::string detail = {}) {
  throw Error(Errc::invalid_argument, message, std::move(detail));
}

bool is_never_replayed(std::string_view name) noexcept {
  return std::any_of(never_replayed.begin(), never_replayed.end(),
                     [&](std::string_view never) { return http::is_same_name(name, never); });
}

void check_replayed_headers(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!http::is_token(name)) refuse("HttpOptions: replayed_headers names no header field", name);
    if (is_never_replayed(name)) {
      refuse(
          "HttpOptions: replayed_headers names a field that must not be replayed: cookies, "
          "credentials, and fields of one connection or message belong to the first response",
          name);
    }
  }
}

HttpOptions checked(HttpOptions options) {
  check_replayed_headers(options.replayed_headers);
  for (const std::string& name : options.fingerprint.headers) {
    if (!http::is_token(name)) refuse("HttpOptions: fingerprint.headers names no field", name);
  }
  for (const HttpMethodRule& rule : options.methods) {
    if (!http::is_token(rule.method)) refuse("HttpOptions: methods names no method", rule.method);
  }
  if (options.longest_key < 1 || options.longest_key > longest_key_allowed) {
    refuse("HttpOptions: longest_key is from 1 to 4096 characters");
  }
  for (const HttpProblem problem : all_problems) {
    const int status = options.problem_statuses.of(problem);
    if (status < 400 || status > 599) {
      refuse("HttpOptions: the status of a problem is from 400 to 599",
             std::string(to_string(problem)));
    }
  }
  for (const char c : options.problem_base) {
    if (!http::is_visible(c) || c == '"' || c == '\\') {
      refuse("HttpOptions: problem_base is visible ASCII without quotes and backslashes");
    }
  }
  if (options.retry_after < milliseconds{0}) refuse("HttpOptions: retry_after is negative");
  if (options.missing_key == MissingHttpKey::issue && options.tokens == nullptr) {
    refuse("HttpOptions: missing_key says issue, and there are no tokens to issue");
  }
  if (options.tokens != nullptr && options.longest_key < TokenSigner::longest_token) {
    options.longest_key = TokenSigner::longest_token;
  }
  if (!options.type_of) static_cast<void>(Key(options.type, "checked now, not with each request"));
  return options;
}

std::string trace_of(const HttpRequest& request) {
  const std::string_view parent = http::trimmed(request.header("traceparent"));
  return std::string(std::all_of(parent.begin(), parent.end(), http::is_visible) ? parent : "");
}

/// An issued key is not kept apart by method and route, so what its request means has to be, whatever a fingerprint of the
/// application's own looks at.
Fingerprint of_scope(std::string_view scope, const std::optional<Fingerprint>& fingerprint) {
  if (!fingerprint) return Fingerprint::of(scope);
  const auto of_part = [&](const Fingerprint::Part& part) {
    const std::vector<std::uint8_t> digest(part.digest.begin(), part.digest.end());
    return Fingerprint::of(scope, digest).as_scheme(part.scheme);
  };
  const Fingerprint current = of_part(fingerprint->current());
  return fingerprint->earlier() ? current.or_earlier(of_part(*fingerprint->earlier())) : current;
}

std::optional<KeyAdvice> advice_of(HttpMeaning meaning, int status) noexcept {
  if (meaning != HttpMeaning::recorded) return KeyAdvice::keep_key;
  if (status >= 400) return KeyAdvice::new_key;
  return std::nullopt;
}

HttpAnswer with_advice(HttpAnswer answer) {
  if (answer.advice) {
    answer.response.headers.push_back(
        {"Idempotency-Advice", std::string(to_string(*answer.advice))});
  }
  return answer;
}

}  // namespace

HttpEdge::HttpEdge(HttpOptions options) : options_(checked(std::move(options))) {}

HttpKeyUse HttpEdge::key_use(const HttpRequest& request) const {
  if (options_.key_use) {
    if (const std::optional<HttpKeyUse> use = options_.key_use(request)) return *use;
  }
  for (const HttpMethodRule& rule : options_.methods) {
    if (rule.method == request.method) return rule.use;
  }
  return HttpKeyUse::ignored;
}

std::string HttpEdge::type_of(const HttpRequest& request) const {
  return options_.type_of ? options_.type_of(request) : options_.type;
}

HttpAdmission HttpEdge::admit(const HttpRequest& request) const {
  const HttpKeyUse use = key_use(request);
  if (use == HttpKeyUse::ignored) return {};
  HttpKeyReading reading =
      read_http_key(request.headers, options_.key_syntax, options_.longest_key);
  if (reading.fault == HttpKeyFault::missing) {
    if (use == HttpKeyUse::required) return {.refusal = without_key(request)};
    passed_without_key_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  if (reading.fault != HttpKeyFault::none) {
    return {.refusal = problem(HttpProblem::key_malformed, std::nullopt)};
  }
  if (request.principal.empty() && options_.anonymous == AnonymousRequests::refuse) {
    return {.refusal = problem(HttpProblem::principal_missing, std::nullopt)};
  }
  if (request.body.size() > options_.longest_body) {
    return {.refusal = problem(HttpProblem::body_too_large, std::nullopt)};
  }
  const std::string scope = std::string(request.method) + ' ' +
                            (request.route.empty() ? normalized_percent_encoding(request.path)
                                                   : std::string(request.route));
  HttpAdmission admission;
  admission.operation = Operation{
      .key = http_record_key(type_of(request), request.principal, scope, reading.key),
      .fingerprint = options_.fingerprint_of ? options_.fingerprint_of(request)
                                             : http_fingerprint(request, options_.fingerprint),
      .trace = trace_of(request),
      .policy = options_.policy};
  if (options_.tokens != nullptr) {
    admission.token = {.token = std::move(reading.key),
                       .purpose = std::string(admission.operation->key.type()),
                       .subject = std::string(request.principal),
                       .fingerprint = of_scope(scope, admission.operation->fingerprint)};
  }
  return admission;
}

PresentedToken HttpEdge::presented(Operation operation, PresentedToken token) const {
  token.trace = std::move(operation.trace);
  token.policy = operation.policy;
  return token;
}

Disposition HttpEdge::judge(const HttpResponse& response) const noexcept {
  switch (options_.statuses.of(response.status)) {
    case HttpMeaning::recorded:
      return Disposition::success;
    case HttpMeaning::retryable:
      return Disposition::retryable;
    case HttpMeaning::uncertain:
      return Disposition::uncertain;
  }
  return Disposition::uncertain;
}

HttpAnswer HttpEdge::executed(HttpResponse response) const {
  const auto advice = detail::advice_of(options_.statuses.of(response.status), response.status);
  return with_advice(
      {.response = std::move(response), .origin = HttpOrigin::executed, .advice = advice});
}

HttpAnswer HttpEdge::problem(HttpProblem problem, std::optional<milliseconds> retry_after) const {
  const int status = options_.problem_statuses.of(problem);
  return {.response = problem_response(problem, status, options_.problem_base, retry_after),
          .origin = HttpOrigin::edge,
          .problem = problem,
          .advice = v0::advice_of(problem)};
}

HttpAnswer HttpEdge::answer(RunResult<HttpResponse> result) const {
  switch (result.status()) {
    case RunStatus::replayed:
    case RunStatus::superseded: {  // another's result counts, or another is at it
      if (!result.has_value()) return problem(HttpProblem::in_progress, result.retry_after());
      HttpAnswer replay{.response = std::move(result).value(), .origin = HttpOrigin::replayed};
      if (replay.response.status >= 400) replay.advice = KeyAdvice::new_key;
      std::erase_if(replay.response.headers, [](const HttpHeader& header) {
        return is_never_replayed(header.name);  // in a record that somebody else has written
      });
      replay.response.headers.push_back({"Idempotent-Replayed", "true"});
      return with_advice(std::move(replay));
    }
    case RunStatus::replayed_without_result:
      return problem(HttpProblem::result_not_kept, std::nullopt);
    case RunStatus::in_progress:
      return problem(HttpProblem::in_progress, result.retry_after());
    case RunStatus::mismatch:
      return problem(HttpProblem::key_reused, std::nullopt);
    case RunStatus::failed:
      return problem(HttpProblem::failed, std::nullopt);
    case RunStatus::undecidable:
      return problem(HttpProblem::store_unavailable, options_.retry_after);
    case RunStatus::not_issued:
      return problem(HttpProblem::key_not_issued, std::nullopt);
    case RunStatus::uncertain:
    case RunStatus::executed:  // with these the handler's own response is sent
    case RunStatus::executed_failed:
    case RunStatus::executed_unrecorded:
    case RunStatus::executed_unprotected:
    case RunStatus::executed_pending_commit:
      break;
  }
  return problem(HttpProblem::outcome_unknown, std::nullopt);
}

std::optional<HttpAnswer> HttpEdge::answer(const Error& error) const {
  switch (error.code()) {
    case Errc::store_unavailable:
    case Errc::store_reply_lost:
    case Errc::store_busy:
    case Errc::store_full:
    case Errc::store_refused:
    case Errc::store_undecidable:
    case Errc::too_large:
    case Errc::lease_too_short:
    case Errc::transaction_lost:
    case Errc::commit_unknown:
      return problem(HttpProblem::store_unavailable, options_.retry_after);
    case Errc::store_corrupt:
    case Errc::codec_mismatch:
    case Errc::codec_corrupt:
    case Errc::unknown_fingerprint_scheme:
      return problem(HttpProblem::record_unreadable, std::nullopt);
    default:
      return std::nullopt;
  }
}

std::vector<HttpHeader> HttpEdge::recorded(const std::vector<HttpHeader>& headers) const {
  const auto is_of_connection = [&](std::string_view name) {
    return std::any_of(headers.begin(), headers.end(), [&](const HttpHeader& header) {
      return http::is_same_name(header.name, "Connection") && http::names(header.value, name);
    });
  };
  std::vector<HttpHeader> kept;
  for (const HttpHeader& header : headers) {
    const auto& names = options_.replayed_headers;
    const bool is_listed = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return http::is_same_name(name, header.name);
    });
    if (is_listed && !is_of_connection(header.name)) kept.push_back(header);
  }
  return kept;
}

std::string HttpEdge::issue(const HttpRequest& request) const {
  return options_.tokens->issue(type_of(request), request.principal, options_.token_lifetime);
}

HttpAnswer HttpEdge::without_key(const HttpRequest& request) const {
  HttpAnswer missing = problem(HttpProblem::key_missing, std::nullopt);
  if (options_.missing_key == MissingHttpKey::refuse) return missing;
  HttpAnswer issued = issue_key(request);
  if (issued.problem) return issued;
  missing.response.headers.push_back(
      {"Idempotency-Key", std::string(issued.response.header("Idempotency-Key"))});
  return missing;
}

HttpAnswer HttpEdge::issue_key(const HttpRequest& request) const {
  if (options_.tokens == nullptr) refuse("issue_key needs HttpOptions::tokens");
  if (request.principal.empty() && options_.anonymous == AnonymousRequests::refuse) {
    return problem(HttpProblem::principal_missing, std::nullopt);
  }
  try {
    const std::string key = issue(request);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(options_.token_lifetime).count();
    return {.response = {.status = 201,
                         .headers = {{"Content-Type", "application/json"},
                                     {"Cache-Control", "no-store"},
                                     {"Idempotency-Key", quoted_http_key(key)}},
                         .body = "{\"idempotency_key\":\"" + key +
                                 "\",\"expires_in\":" + std::to_string(seconds) + "}"},
            .origin = HttpOrigin::edge};
  } catch (const Error& error) {
    if (std::optional<HttpAnswer> refusal = answer(error)) return *std::move(refusal);
    throw;
  }
}

HttpResponse HttpRun::keep(HttpResponse response) {
  std::vector<HttpHeader> recorded = edge_->recorded(response.headers);
  own_headers_ = std::move(response.headers);
  response.headers = std::move(recorded);
  return response;
}

HttpAnswer HttpRun::answer(RunResult<HttpResponse> result) {
  const bool is_own =
      own_headers_ && result.status() != RunStatus::superseded && result.has_value();
  if (!is_own) return edge_->answer(std::move(result));
  HttpResponse response = std::move(result).value();
  response.headers = *std::move(own_headers_);
  return edge_->executed(std::move(response));
}

std::optional<HttpAnswer> HttpRun::answer(const Error& error) const {
  if (own_headers_) return edge_->problem(HttpProblem::outcome_unknown, std::nullopt);
  if (!handler_threw_) return edge_->answer(error);
  if (dynamic_cast<const PermanentFailure*>(&error) != nullptr) {
    return edge_->problem(HttpProblem::failed, std::nullopt);
  }
  if (dynamic_cast<const OutcomeUnknown*>(&error) != nullptr) {
    return edge_->problem(HttpProblem::outcome_unknown, std::nullopt);
  }
  const bool can_be_repeated =
      dynamic_cast<const RetryableFailure*>(&error) != nullptr || error.code() == Errc::lease_lost;
  if (!can_be_repeated) return std::nullopt;
  return edge_->problem(HttpProblem::failed_for_now, edge_->store_retry_after());
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
