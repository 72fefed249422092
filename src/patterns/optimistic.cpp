#include "idempotency/patterns/optimistic.hpp"

namespace idempotency {
inline namespace v0 {

VersionedTable::VersionedTable(const VersionedTableOptions& options) {
  const std::string table = detail::quoted_table(options.table);
  const std::string id = detail::quoted_column(options.id_column);
  const std::string version = detail::quoted_column(options.version_column);
  update_ = "UPDATE " + table + " SET ";
  // Last: in MySQL, assignments see the new values of those before them.
  condition_ =
      ", " + version + " = " + version + " + 1 WHERE " + id + " = ? AND " + version + " = ?";
  look_ = "SELECT " + version + " FROM " + table + " WHERE " + id + " = ?";
}

std::string VersionedTable::statement_for(std::string_view assignments) const {
  return update_ + std::string(assignments) + condition_;
}

}  // namespace v0
}  // namespace idempotency
