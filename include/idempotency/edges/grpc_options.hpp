#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/edges/grpc_status.hpp"
#include "idempotency/edges/http_key.hpp"
#include "idempotency/edges/http_options.hpp"
#include "idempotency/fingerprint.hpp"
#include "idempotency/key.hpp"
#include "idempotency/policy.hpp"

namespace idempotency {
inline namespace v0 {

/// What one call is, besides its messages.
///
/// Lifetime: of the text, until the call that is given it has returned.
struct GrpcCall {
  /// The full name, such as `/shop.Payments/Charge`, which gRPC does not tell a service: keys are kept apart by it.
  std::string_view method;
  /// The business type of the record, which selects the guard's policy; empty: `GrpcOptions::type`.
  std::string_view type = {};
  /// In the place of `grpc_fingerprint`, for example `Fingerprint::of(request.order(), request.cents())`.
  std::optional<Fingerprint> fingerprint = std::nullopt;
};

class TokenService;

/// How a `GrpcIdempotency` works.
///
/// Callbacks are called concurrently. What they throw reaches the caller of `run`; nothing has run then.
struct GrpcOptions {
  /// Of calls without a key. With `ignored` no call is protected.
  HttpKeyUse key_use = HttpKeyUse::required;
  HttpKeySyntax key_syntax = HttpKeySyntax::lenient;
  std::size_t longest_key = 255;  ///< in characters, 1 to 4096; with `tokens` at least theirs
  AnonymousRequests anonymous = AnonymousRequests::refuse;
  /// Who is asking, as your authentication has it; empty text: nobody. Empty function: `grpc_peer_identity`.
  std::function<std::string(const grpc::ServerContextBase&)> principal = {};

  /// The business type of the records, which selects the guard's policy.
  std::string type = "grpc";
  /// What these operations want different from their type's policy.
  PolicyOverride policy = {};

  GrpcStatusPolicy statuses = {};
  GrpcProblemStatuses problem_statuses = {};
  /// When a client is to ask again while the store cannot be asked, and after `RetryableFailure`.
  std::chrono::milliseconds retry_after{1'000};
  /// A client is never told to ask again later than this, however long the running call's lease is. At least 1 ms.
  std::chrono::milliseconds longest_pushback{1'000};

  /// Only keys that this issued are accepted (`issue(type, principal, lifetime)`), from the principal they were issued to, for the same
  /// type; they are not kept apart by method. Null: any key. Must outlive the edge.
  TokenService* tokens = nullptr;
};

/// The peer as gRPC has authenticated it (of a client certificate its alternative names, or else its common name): the name of the
/// property, and its values in an order of their own, joined so that no others give the same text. Empty when it has not, or by empty names only.
///
/// A proxy that speaks to the service with a certificate of its own is the peer then: give `GrpcOptions::principal`.
[[nodiscard]] std::string grpc_peer_identity(const grpc::AuthContext& context);

/// What a request means: the method and the request in protobuf's deterministic binary format.
///
/// Fields that this program's version of the message does not know count, too, and stand where another version puts
/// known ones: where services of two versions answer the same clients, choose fields yourself (`GrpcCall::fingerprint`).
///
/// Errors: `Errc::codec_unencodable` when a required field is missing.
[[nodiscard]] Fingerprint grpc_fingerprint(std::string_view method,
                                           const google::protobuf::MessageLite& request);

/// The record's key for what a client calls `client_key`: for operators who look a call up. See `http_record_key`.
///
/// Errors: `Errc::invalid_key` for a type that is none and an empty client key.
[[nodiscard]] Key grpc_record_key(std::string_view type, std::string_view principal,
                                  std::string_view method, std::string_view client_key);

}  // namespace v0
}  // namespace idempotency
