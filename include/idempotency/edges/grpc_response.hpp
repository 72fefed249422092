#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "idempotency/codec.hpp"

namespace idempotency {
inline namespace v0 {

/// Whether a reply can be recorded.
enum class GrpcReplyForm : std::uint8_t {
  whole,       ///< `GrpcResponse::reply` is all of it
  unreadable,  ///< it could not be read back: duplicates get `GrpcProblem::result_not_kept`
};

/// The answer to a unary call: what is recorded and replayed.
///
/// Thread safety: a value.
struct GrpcResponse {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message = {};  ///< the status's text
  std::string details = {};  ///< its details, as bytes (`grpc::Status::error_details`)
  std::string type = {};     ///< full name of the reply's message; empty unless `code` is `OK`
  std::string reply = {};    ///< the reply in protobuf's binary format; empty unless `code` is `OK`
  GrpcReplyForm form = GrpcReplyForm::whole;

  friend bool operator==(const GrpcResponse&, const GrpcResponse&) = default;
};

/// `OK` and `reply`: for whoever settles a record.
[[nodiscard]] GrpcResponse grpc_response(const google::protobuf::MessageLite& reply);
/// A status without a reply: for whoever settles a record as refused.
[[nodiscard]] GrpcResponse grpc_response(const grpc::Status& status);

/// How a response stands in a record: code (1 byte), then message, details, type and reply, each with its length as in `append_sized`.
///
/// Errors: `Errc::codec_unencodable` for a reply that could not be read back and what is no status code; `Errc::codec_corrupt` for
/// bytes that say such a thing.
template <>
struct Codec<GrpcResponse> {
  static constexpr std::string_view name = "grpc-response/1";
  static void encode(const GrpcResponse& response, std::string& out);
  [[nodiscard]] static GrpcResponse decode(ByteReader& in);
};

}  // namespace v0
}  // namespace idempotency
