#include "idempotency/edges/grpc_status.hpp"

#include <cstddef>

#include "idempotency/codecs/protobuf.hpp"
#include "idempotency/edges/grpc_response.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using grpc::StatusCode;

constexpr int last_code = static_cast<int>(StatusCode::UNAUTHENTICATED);

constexpr bool is_code(StatusCode code) noexcept {
  return static_cast<int>(code) >= 0 && static_cast<int>(code) <= last_code;
}

struct Words {
  std::string_view name;
  const char* text;
  KeyAdvice advice;
};

/// In the order of `GrpcProblem`.
constexpr std::array<Words, 12> all_words{{
    {"key-missing",
     "This call needs the metadata idempotency-key, with a key that no other call of yours has, "
     "such as a random UUID.",
     KeyAdvice::new_key},
    {"key-malformed",
     "The metadata idempotency-key must be there once, and neither be empty nor longer than this "
     "server accepts.",
     KeyAdvice::new_key},
    {"key-not-issued",
     "This server accepts keys that it has issued to the same caller, for this, a short time ago. "
     "Ask it for another one.",
     KeyAdvice::new_key},
    {"principal-missing", "Keys belong to a caller. Authenticate first.", KeyAdvice::keep_key},
    {"key-reused",
     "The idempotency-key was used before with another request. A repeated request must be the "
     "same; another request needs a key of its own.",
     KeyAdvice::new_key},
    {"in-progress", "The first call is still being processed. Call again with the same key.",
     KeyAdvice::keep_key},
    {"store-unavailable",
     "Whether this is a repetition cannot be told now. Nothing was done. Call again with the same "
     "key.",
     KeyAdvice::keep_key},
    {"outcome-unknown",
     "What became of the call is not known yet; it may have taken effect. Keep the key, do not use "
     "another one, and ask the support if the same call with the same key goes on being answered "
     "so.",
     KeyAdvice::keep_key},
    {"result-not-kept",
     "It was processed once and will not be again. Its reply was not kept, for example because it "
     "was too large; read the state of what it changed.",
     KeyAdvice::done},
    {"failed",
     "The call has failed for good. It had no effect and will not be tried again under this key.",
     KeyAdvice::new_key},
    {"failed-for-now",
     "The call has failed for now. It had no effect. Call again with the same key.",
     KeyAdvice::keep_key},
    {"record-unreadable",
     "The record of the call cannot be read. Nothing was done now. Keep the key, do not use "
     "another one, and ask the support.",
     KeyAdvice::keep_key},
}};

constexpr const Words& words_of(GrpcProblem problem) noexcept {
  return all_words[static_cast<std::size_t>(problem)];
}
static_assert(words_of(GrpcProblem::key_missing).name == "key-missing");
static_assert(words_of(GrpcProblem::in_progress).name == "in-progress");
static_assert(words_of(GrpcProblem::record_unreadable).name == "record-unreadable");

}  // namespace

GrpcStatusPolicy::GrpcStatusPolicy() {
  meanings_.fill(GrpcMeaning::recorded);
  for (const StatusCode code : {StatusCode::RESOURCE_EXHAUSTED, StatusCode::ABORTED,
                                StatusCode::UNAVAILABLE, StatusCode::UNAUTHENTICATED}) {
    set(code, GrpcMeaning::retryable);
  }
  for (const StatusCode code :
       {StatusCode::CANCELLED, StatusCode::UNKNOWN, StatusCode::DEADLINE_EXCEEDED,
        StatusCode::INTERNAL, StatusCode::DATA_LOSS}) {
    set(code, GrpcMeaning::uncertain);
  }
}

GrpcStatusPolicy GrpcStatusPolicy::recording_all() {
  GrpcStatusPolicy policy;
  policy.meanings_.fill(GrpcMeaning::recorded);
  return policy;
}

GrpcStatusPolicy& GrpcStatusPolicy::set(StatusCode code, GrpcMeaning meaning) {
  if (!is_code(code)) {
    throw Error(Errc::invalid_argument, "GrpcStatusPolicy: gRPC's status codes are 0 to 16");
  }
  if (code == StatusCode::OK && meaning != GrpcMeaning::recorded) {
    throw Error(Errc::invalid_argument, "GrpcStatusPolicy: what ended with OK is recorded");
  }
  meanings_.at(static_cast<std::size_t>(code)) = meaning;
  return *this;
}

GrpcMeaning GrpcStatusPolicy::of(StatusCode code) const noexcept {
  if (!is_code(code)) return GrpcMeaning::uncertain;
  return meanings_[static_cast<std::size_t>(code)];
}

std::string_view to_string(GrpcProblem problem) noexcept { return words_of(problem).name; }

KeyAdvice advice_of(GrpcProblem problem) noexcept { return words_of(problem).advice; }

StatusCode GrpcProblemStatuses::of(GrpcProblem problem) const noexcept {
  switch (problem) {
    case GrpcProblem::key_missing:
      return key_missing;
    case GrpcProblem::key_malformed:
      return key_malformed;
    case GrpcProblem::key_not_issued:
      return key_not_issued;
    case GrpcProblem::principal_missing:
      return principal_missing;
    case GrpcProblem::key_reused:
      return key_reused;
    case GrpcProblem::in_progress:
      return in_progress;
    case GrpcProblem::store_unavailable:
      return store_unavailable;
    case GrpcProblem::outcome_unknown:
      return outcome_unknown;
    case GrpcProblem::result_not_kept:
      return result_not_kept;
    case GrpcProblem::failed:
      return failed;
    case GrpcProblem::failed_for_now:
      return failed_for_now;
    case GrpcProblem::record_unreadable:
      return record_unreadable;
  }
  return record_unreadable;
}

grpc::Status problem_status(GrpcProblem problem, StatusCode code) {
  return {code, words_of(problem).text};
}

GrpcResponse grpc_response(const google::protobuf::MessageLite& reply) {
  return {.type = reply.GetTypeName(), .reply = detail::readable_protobuf(reply)};
}

GrpcResponse grpc_response(const grpc::Status& status) {
  return {.code = status.error_code(),
          .message = status.error_message(),
          .details = status.error_details()};
}

void Codec<GrpcResponse>::encode(const GrpcResponse& response, std::string& out) {
  if (response.form != GrpcReplyForm::whole) {
    detail::throw_codec_unencodable("the reply could not be read back");
  }
  if (!is_code(response.code)) {
    detail::throw_codec_unencodable("the code is none of gRPC's status codes");
  }
  out += static_cast<char>(response.code);
  append_sized(out, response.message);
  append_sized(out, response.details);
  append_sized(out, response.type);
  append_sized(out, response.reply);
}

GrpcResponse Codec<GrpcResponse>::decode(ByteReader& in) {
  GrpcResponse response;
  const std::uint8_t code = in.take_byte();
  if (code > last_code) detail::throw_codec_corrupt("the code is none of gRPC's status codes");
  response.code = static_cast<StatusCode>(code);
  response.message = in.take_sized();
  response.details = in.take_sized();
  response.type = in.take_sized();
  response.reply = in.take_sized();
  return response;
}

}  // namespace v0
}  // namespace idempotency
