#pragma once

#include <sqlite3.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace idempotency::testing_support {

/// A VFS that counts flushes and makes writes and flushes of the write-ahead log fail when asked
/// to.
///
/// Name it in `SqliteOptions::vfs`. One for the whole process; tests that use it run one after the
/// other.
class SqliteFaults {
 public:
  static constexpr const char* name = "idempotency_faults";

  /// Registers the VFS once and clears counts and faults.
  static SqliteFaults& fresh();

  std::atomic<int> log_flushes{0};
  std::atomic<int> database_flushes{0};
  /// So many of the next flushes of the log fail with SQLITE_IOERR_FSYNC, after the bytes are
  /// written.
  std::atomic<int> failing_log_flushes{0};
  /// While not SQLITE_OK, every write to the log fails with it.
  std::atomic<int> log_write_result{SQLITE_OK};

 private:
  struct File {
    sqlite3_file base;
    int flags;
    sqlite3_file* real() noexcept { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };

  static File* file(sqlite3_file* handle) noexcept { return reinterpret_cast<File*>(handle); }
  static sqlite3_file* real(sqlite3_file* handle) noexcept { return file(handle)->real(); }
  static const sqlite3_io_methods* methods(sqlite3_file* handle) noexcept {
    return real(handle)->pMethods;
  }
  static bool is_log(sqlite3_file* handle) noexcept {
    return (file(handle)->flags & SQLITE_OPEN_WAL) != 0;
  }
  static SqliteFaults& instance() noexcept {
    static SqliteFaults faults;
    return faults;
  }
  static sqlite3_vfs*& real_vfs() noexcept {
    static sqlite3_vfs* vfs = nullptr;
    return vfs;
  }

  static int open(sqlite3_vfs*, const char* path, sqlite3_file* handle, int flags, int* out);
  static int write(sqlite3_file* handle, const void* data, int size, sqlite3_int64 offset);
  static int sync(sqlite3_file* handle, int flags);
  static const sqlite3_io_methods& forwarding() noexcept;
};

inline SqliteFaults& SqliteFaults::fresh() {
  static sqlite3_vfs vfs = [] {
    real_vfs() = sqlite3_vfs_find(nullptr);
    sqlite3_vfs copy = *real_vfs();
    copy.pNext = nullptr;
    copy.zName = name;
    copy.szOsFile = static_cast<int>(sizeof(File)) + real_vfs()->szOsFile;
    copy.xOpen = &SqliteFaults::open;
    return copy;
  }();
  static const int registered = sqlite3_vfs_register(&vfs, 0);
  static_cast<void>(registered);
  SqliteFaults& faults = instance();
  faults.log_flushes = 0;
  faults.database_flushes = 0;
  faults.failing_log_flushes = 0;
  faults.log_write_result = SQLITE_OK;
  return faults;
}

inline int SqliteFaults::open(sqlite3_vfs*, const char* path, sqlite3_file* handle, int flags,
                              int* out) {
  handle->pMethods = nullptr;
  file(handle)->flags = flags;
  const int opened = real_vfs()->xOpen(real_vfs(), path, real(handle), flags, out);
  if (opened == SQLITE_OK) handle->pMethods = &forwarding();
  return opened;
}

inline int SqliteFaults::write(sqlite3_file* handle, const void* data, int size,
                               sqlite3_int64 offset) {
  if (is_log(handle) && instance().log_write_result != SQLITE_OK) {
    return instance().log_write_result;
  }
  return methods(handle)->xWrite(real(handle), data, size, offset);
}

inline int SqliteFaults::sync(sqlite3_file* handle, int flags) {
  if (!is_log(handle)) {
    ++instance().database_flushes;
    return methods(handle)->xSync(real(handle), flags);
  }
  ++instance().log_flushes;
  if (instance().failing_log_flushes > 0) {
    --instance().failing_log_flushes;
    return SQLITE_IOERR_FSYNC;
  }
  return methods(handle)->xSync(real(handle), flags);
}

inline const sqlite3_io_methods& SqliteFaults::forwarding() noexcept {
  using H = sqlite3_file*;
  static const sqlite3_io_methods table = {
      3,
      [](H h) { return methods(h)->xClose(real(h)); },
      [](H h, void* data, int size, sqlite3_int64 at) {
        return methods(h)->xRead(real(h), data, size, at);
      },
      &SqliteFaults::write,
      [](H h, sqlite3_int64 size) { return methods(h)->xTruncate(real(h), size); },
      &SqliteFaults::sync,
      [](H h, sqlite3_int64* size) { return methods(h)->xFileSize(real(h), size); },
      [](H h, int level) { return methods(h)->xLock(real(h), level); },
      [](H h, int level) { return methods(h)->xUnlock(real(h), level); },
      [](H h, int* out) { return methods(h)->xCheckReservedLock(real(h), out); },
      [](H h, int operation, void* argument) {
        return methods(h)->xFileControl(real(h), operation, argument);
      },
      [](H h) { return methods(h)->xSectorSize(real(h)); },
      [](H h) { return methods(h)->xDeviceCharacteristics(real(h)); },
      [](H h, int page, int size, int extend, void volatile** out) {
        return methods(h)->xShmMap(real(h), page, size, extend, out);
      },
      [](H h, int offset, int count, int flags) {
        return methods(h)->xShmLock(real(h), offset, count, flags);
      },
      [](H h) { methods(h)->xShmBarrier(real(h)); },
      [](H h, int remove) { return methods(h)->xShmUnmap(real(h), remove); },
      [](H h, sqlite3_int64 at, int size, void** out) {
        return methods(h)->xFetch(real(h), at, size, out);
      },
      [](H h, sqlite3_int64 at, void* page) { return methods(h)->xUnfetch(real(h), at, page); },
  };
  return table;
}

}  // namespace idempotency::testing_support
