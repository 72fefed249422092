#pragma once

#include <string>

#include <sys/types.h>

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// Which file a path leads to.
struct FileIdentity {
  dev_t device{};
  ino_t inode{};
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// Errors: `Errc::store_unavailable` when the file cannot be looked at.
[[nodiscard]] FileIdentity identity_of(const std::string& path);

/// Remembers, for as long as it lives, that this process has the file open through SQLite.
///
/// SQLite keeps one list of its locks for the whole process, and a child of `fork()` inherits the
/// list without the locks. So a file that was open at the fork cannot be used in the child.
///
/// Errors: `Errc::used_after_fork` for such a file.
/// Thread safety: may be made and destroyed concurrently.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path);
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }

  /// Errors: `Errc::used_after_fork` when the file was open before a fork that made this process.
  static void check(const std::string& path);

 private:
  FileIdentity identity_;
};

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
