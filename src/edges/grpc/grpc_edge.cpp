#include "idempotency/detail/grpc_edge.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "edges/http_text.hpp"
#include "idempotency/codecs/protobuf.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view key_name = "idempotency-key";
constexpr std::string_view trace_name = "traceparent";
constexpr std::size_t longest_key_allowed = 4096;
constexpr std::array all_problems{
    GrpcProblem::key_missing,       GrpcProblem::key_malformed,
    GrpcProblem::key_not_issued,    GrpcProblem::principal_missing,
    GrpcProblem::key_reused,        GrpcProblem::in_progress,
    GrpcProblem::store_unavailable, GrpcProblem::outcome_unknown,
    GrpcProblem::result_not_kept,   GrpcProblem::failed,
    GrpcProblem::failed_for_now,    GrpcProblem::record_unreadable,
};

/// A cancelled call that waits holds its thread no longer than this.
constexpr milliseconds longest_piece{500};
/// So that the answer still gets to a client whose deadline is near.
constexpr milliseconds longest_margin{100};

[[noreturn]] void refuse(const char* message, std::string detail = {}) {
  throw Error(Errc::invalid_argument, message, std::move(detail));
}

std::string_view text_of(const grpc::string_ref& text) noexcept {
  return {text.data(), text.size()};
}

GrpcOptions checked(GrpcOptions options) {
  if (options.longest_key < 1 || options.longest_key > longest_key_allowed) {
    refuse("GrpcOptions: longest_key is from 1 to 4096 characters");
  }
  for (const GrpcProblem problem : all_problems) {
    const grpc::StatusCode code = options.problem_statuses.of(problem);
    if (code < grpc::StatusCode::CANCELLED || code > grpc::StatusCode::UNAUTHENTICATED) {
      refuse("GrpcOptions: the status of a problem is a status code of gRPC's other than OK",
             std::string(to_string(problem)));
    }
  }
  if (options.retry_after < milliseconds{0}) refuse("GrpcOptions: retry_after is negative");
  if (options.longest_pushback < milliseconds{1}) {
    refuse("GrpcOptions: longest_pushback is at least 1 ms");
  }
  if (options.tokens != nullptr && options.longest_key < TokenSigner::longest_token) {
    options.longest_key = TokenSigner::longest_token;
  }
  static_cast<void>(Key(options.type, "checked now, not with each call"));
  return options;
}

/// Whether it is a slash, a service, a slash and a method.
bool is_full_method_name(std::string_view name) noexcept {
  const std::size_t slash = name.rfind('/');
  return name.starts_with('/') && slash != std::string_view::npos && slash > 1 &&
         slash + 1 < name.size() && name.find('/', 1) == slash;
}

HttpKeyReading read_key(const grpc::ServerContextBase& context, const GrpcOptions& options) {
  const auto [first, last] =
      context.client_metadata().equal_range({key_name.data(), key_name.size()});
  if (first == last) return {.key = {}, .fault = HttpKeyFault::missing};
  if (std::next(first) != last) return {.key = {}, .fault = HttpKeyFault::repeated};
  return read_http_key(text_of(first->second), options.key_syntax, options.longest_key);
}

std::string trace_of(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find({trace_name.data(), trace_name.size()});
  if (found == context.client_metadata().end()) return {};
  const std::string_view parent = text_of(found->second);
  const bool is_text = std::all_of(parent.begin(), parent.end(), detail::http::is_visible);
  return std::string(is_text ? parent : std::string_view());
}

/// An issued key is not kept apart by method, so what its request means has to be.
Fingerprint of_method(std::string_view method, const Fingerprint& fingerprint) {
  const auto of_part = [&](const Fingerprint::Part& part) {
    const std::vector<std::uint8_t> digest(part.digest.begin(), part.digest.end());
    return Fingerprint::of(method, digest).as_scheme(part.scheme);
  };
  const Fingerprint current = of_part(fingerprint.current());
  return fingerprint.earlier() ? current.or_earlier(of_part(*fingerprint.earlier())) : current;
}

/// How long the client goes on waiting.
milliseconds time_left(const grpc::ServerContextBase& context) noexcept {
  return std::chrono::floor<milliseconds>(context.deadline() - std::chrono::system_clock::now());
}

void advise(grpc::ServerContextBase& context, KeyAdvice advice) {
  context.AddTrailingMetadata("idempotency-advice", std::string(to_string(advice)));
}

void advise(grpc::ServerContextBase& context, GrpcMeaning meaning, grpc::StatusCode code) {
  if (code == grpc::StatusCode::OK) return;
  advise(context, meaning == GrpcMeaning::recorded ? KeyAdvice::new_key : KeyAdvice::keep_key);
}

}  // namespace

std::string grpc_peer_identity(const grpc::AuthContext& context) {
  if (!context.IsPeerAuthenticated()) return {};
  std::vector<grpc::string_ref> values = context.GetPeerIdentity();
  std::erase_if(values, [](const grpc::string_ref& value) { return value.empty(); });
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  std::string identity;
  append_sized(identity, context.GetPeerIdentityPropertyName());
  for (const grpc::string_ref& value : values)
    append_sized(identity, text_of(value));
  return identity;
}

Fingerprint grpc_fingerprint(std::string_view method,
                             const google::protobuf::MessageLite& request) {
  return Fingerprint::of(method, detail::deterministic_protobuf(request));
}

Key grpc_record_key(std::string_view type, std::string_view principal, std::string_view method,
                    std::string_view client_key) {
  return http_record_key(type, principal, method, client_key);
}

namespace detail {

GrpcEdge::GrpcEdge(GrpcOptions options) : options_(checked(std::move(options))) {}

std::string GrpcEdge::principal_of(const grpc::ServerContextBase& context) const {
  if (options_.principal) return options_.principal(context);
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  return peer ? grpc_peer_identity(*peer) : std::string();
}

GrpcAdmission GrpcEdge::admit(grpc::ServerContextBase& context, const GrpcCall& call,
                              const google::protobuf::MessageLite& request) const {
  if (!is_full_method_name(call.method)) {
    refuse("GrpcCall: method is a full name, such as /shop.Payments/Charge",
           std::string(call.method));
  }
  if (options_.key_use == HttpKeyUse::ignored) return {};
  const HttpKeyReading reading = read_key(context, options_);
  if (reading.fault == HttpKeyFault::missing) {
    if (options_.key_use == HttpKeyUse::required) {
      return {.refusal = problem(context, GrpcProblem::key_missing)};
    }
    passed_without_key_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  if (reading.fault != HttpKeyFault::none) {
    return {.refusal = problem(context, GrpcProblem::key_malformed)};
  }
  const std::string principal = principal_of(context);
  if (principal.empty() && options_.anonymous == AnonymousRequests::refuse) {
    return {.refusal = problem(context, GrpcProblem::principal_missing)};
  }
  if (context.IsCancelled()) return {.refusal = cancelled_status()};
  const std::string_view type = call.type.empty() ? std::string_view(options_.type) : call.type;
  GrpcAdmission admission;
  admission.operation = Operation{
      .key = grpc_record_key(type, principal, call.method, reading.key),
      .fingerprint = call.fingerprint ? *call.fingerprint : grpc_fingerprint(call.method, request),
      .trace = trace_of(context),
      .policy = options_.policy};
  if (options_.tokens != nullptr) {
    admission.token = {.token = reading.key,
                       .purpose = std::string(type),
                       .subject = principal,
                       .fingerprint = of_method(call.method, *admission.operation->fingerprint),
                       .trace = admission.operation->trace,
                       .policy = options_.policy};
  }
  return admission;
}

Disposition GrpcEdge::judge(const GrpcResponse& response) const noexcept {
  switch (options_.statuses.of(response.code)) {
    case GrpcMeaning::recorded:
      return Disposition::success;
    case GrpcMeaning::retryable:
      return Disposition::retryable;
    case GrpcMeaning::uncertain:
      return Disposition::uncertain;
  }
  return Disposition::uncertain;
}

grpc::Status GrpcEdge::problem(grpc::ServerContextBase& context, GrpcProblem problem) const {
  context.AddTrailingMetadata("idempotency-problem", std::string(to_string(problem)));
  advise(context, advice_of(problem));
  context.AddTrailingMetadata("grpc-retry-pushback-ms", "-1");  // not by itself
  return problem_status(problem, options_.problem_statuses.of(problem));
}

grpc::Status GrpcEdge::problem(grpc::ServerContextBase& context, GrpcProblem problem,
                               milliseconds retry_after) const {
  context.AddTrailingMetadata("idempotency-problem", std::string(to_string(problem)));
  advise(context, advice_of(problem));
  // Later than its deadline a client does not ask at all.
  const milliseconds wait = std::max(
      milliseconds{1}, std::min({retry_after, options_.longest_pushback, time_left(context) / 2}));
  context.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(wait.count()));
  return problem_status(problem, options_.problem_statuses.of(problem));
}

GrpcResponse GrpcRun::record(Execution* execution) {
  handler_threw_ = true;  // until it has returned
  const grpc::Status status = handler_->call(execution);
  handler_threw_ = false;
  own_ = status;
  if (!status.ok()) return grpc_response(status);
  try {
    return grpc_response(*reply_);
  } catch (const std::exception&) {  // it is done: only its reply cannot be kept
    return {.form = GrpcReplyForm::unreadable};
  }
}

grpc::Status GrpcRun::answer(const RunResult<GrpcResponse>& result) {
  const bool is_own = own_ && result.status() != RunStatus::superseded && result.has_value();
  if (!is_own) return answer_of_another(result);
  advise(*context_, edge_->options().statuses.of(own_->error_code()), own_->error_code());
  return *own_;
}

grpc::Status GrpcRun::replay(const GrpcResponse& response) {
  if (response.code == grpc::StatusCode::OK) {
    if (response.type != reply_->GetTypeName() || !parse_protobuf(response.reply, *reply_)) {
      return edge_->problem(*context_, GrpcProblem::record_unreadable);
    }
  }
  context_->AddTrailingMetadata("idempotent-replayed", "true");
  advise(*context_, GrpcMeaning::recorded, response.code);
  return {response.code, response.message, response.details};
}

grpc::Status GrpcRun::answer_of_another(const RunResult<GrpcResponse>& result) {
  switch (result.status()) {
    case RunStatus::replayed:
    case RunStatus::superseded:  // another's result counts, or another is at it
      if (result.has_value()) return replay(result.value());
      return edge_->problem(*context_, GrpcProblem::in_progress, result.retry_after());
    case RunStatus::replayed_without_result:
      return edge_->problem(*context_, GrpcProblem::result_not_kept);
    case RunStatus::in_progress:
      return edge_->problem(*context_, GrpcProblem::in_progress, result.retry_after());
    case RunStatus::mismatch:
      return edge_->problem(*context_, GrpcProblem::key_reused);
    case RunStatus::failed:
      return edge_->problem(*context_, GrpcProblem::failed);
    case RunStatus::undecidable:
      return edge_->problem(*context_, GrpcProblem::store_unavailable,
                            edge_->options().retry_after);
    case RunStatus::not_issued:
      return edge_->problem(*context_, GrpcProblem::key_not_issued);
    case RunStatus::uncertain:
    case RunStatus::executed:  // with these the handler's own status is sent
    case RunStatus::executed_failed:
    case RunStatus::executed_unrecorded:
    case RunStatus::executed_unprotected:
    case RunStatus::executed_pending_commit:
      break;
  }
  return edge_->problem(*context_, GrpcProblem::outcome_unknown);
}

std::optional<grpc::Status> GrpcRun::answer_before_handler(const Error& error) const {
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
      return edge_->problem(*context_, GrpcProblem::store_unavailable,
                            edge_->options().retry_after);
    case Errc::commit_unknown:
      return edge_->problem(*context_, GrpcProblem::outcome_unknown);
    case Errc::store_corrupt:
    case Errc::codec_mismatch:
    case Errc::codec_corrupt:
    case Errc::unknown_fingerprint_scheme:
      return edge_->problem(*context_, GrpcProblem::record_unreadable);
    default:
      return std::nullopt;
  }
}

std::optional<grpc::Status> GrpcRun::answer(const Error& error) const {
  if (own_) return edge_->problem(*context_, GrpcProblem::outcome_unknown);
  if (!handler_threw_) return answer_before_handler(error);
  if (dynamic_cast<const PermanentFailure*>(&error) != nullptr) {
    return edge_->problem(*context_, GrpcProblem::failed);
  }
  if (dynamic_cast<const OutcomeUnknown*>(&error) != nullptr) {
    return edge_->problem(*context_, GrpcProblem::outcome_unknown);
  }
  const bool can_be_repeated =
      dynamic_cast<const RetryableFailure*>(&error) != nullptr || error.code() == Errc::lease_lost;
  if (!can_be_repeated) return std::nullopt;
  return edge_->problem(*context_, GrpcProblem::failed_for_now, edge_->options().retry_after);
}

GrpcWait::GrpcWait(const grpc::ServerContextBase& context, milliseconds wait) noexcept
    : started_(std::chrono::steady_clock::now()), total_(wait) {
  if (wait <= milliseconds{0}) return;
  const milliseconds until_deadline = time_left(context);
  total_ = std::min(wait, until_deadline - std::min(until_deadline / 10, longest_margin));
}

milliseconds GrpcWait::left() const noexcept {
  return total_ - std::chrono::floor<milliseconds>(std::chrono::steady_clock::now() - started_);
}

milliseconds GrpcWait::next() const noexcept {
  return std::clamp(left(), milliseconds{0}, longest_piece);
}

grpc::Status cancelled_status() {
  return {grpc::StatusCode::CANCELLED, "The caller has gone. Nothing was done by this call."};
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
