#pragma once

#include <cstdint>
#include <optional>

#include "idempotency/edges/http_message.hpp"
#include "idempotency/edges/http_problem.hpp"

namespace idempotency {
inline namespace v0 {

/// Where an answer of `HttpIdempotency::handle` comes from.
enum class HttpOrigin : std::uint8_t {
  untouched,  ///< from the handler, without a record: the request was not protected
  executed,   ///< from the handler, now
  replayed,   ///< from the record; has the field `Idempotent-Replayed: true`
  edge,       ///< from this library: a problem, or an issued key
};

/// What is to be sent, and what is to be said of it.
///
/// After `untouched` and `executed` the fields are the handler's own, all of them and in their order; the edge's come behind.
struct [[nodiscard]] HttpAnswer {
  HttpResponse response;
  HttpOrigin origin = HttpOrigin::edge;
  std::optional<HttpProblem> problem = std::nullopt;
  /// Also sent, as `Idempotency-Advice`, with every answer under a key that is no success.
  std::optional<KeyAdvice> advice = std::nullopt;
};

}  // namespace v0
}  // namespace idempotency
