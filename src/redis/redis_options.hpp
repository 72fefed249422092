#pragma once

#include "idempotency/stores/redis.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

/// Errors: `Errc::invalid_argument` for options with which no store can work.
void check_options(const RedisOptions& options);

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
