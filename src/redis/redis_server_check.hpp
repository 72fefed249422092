#pragma once

#include <string_view>

#include "idempotency/observer.hpp"
#include "redis/redis_connection.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

/// Tells the observer in which ways the server's set-up can lose records, and what could not be found out.
void report_hazards(Connection& connection, Observer& observer);

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
