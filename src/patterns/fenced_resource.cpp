#include "idempotency/patterns/fenced_resource.hpp"

#include "idempotency/detail/sql_names.hpp"

namespace idempotency {
inline namespace v0 {

namespace detail {

void check_fence(std::uint64_t fence) {
  if (fence > 0 && fence < std::uint64_t{1} << 53U) return;
  throw Error(Errc::invalid_argument, "a fence is a number from 1 to 2^53 that a lock has given");
}

}  // namespace detail

FencedSqlResource::FencedSqlResource(const FencedSqlOptions& options)
    : rows_({.table = options.table,
             .id_column = options.id_column,
             .version_column = options.fence_column}) {
  const std::string fence = detail::quoted_column(options.fence_column);
  update_ = "UPDATE " + detail::quoted_table(options.table) + " SET ";
  condition_ = ", " + fence + " = ? WHERE " + detail::quoted_column(options.id_column) +
               " = ? AND " + fence + " <= ?";
}

}  // namespace v0
}  // namespace idempotency
