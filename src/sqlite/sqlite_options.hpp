#pragma once

#include "idempotency/stores/sqlite.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// Errors: `Errc::invalid_argument` for options with which no store can work.
void check_options(const SqliteOptions& options);

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
