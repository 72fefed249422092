#include "sqlite/sqlite_open_files.hpp"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/fork_generation.hpp"
#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

namespace {

struct Entry {
  FileIdentity file;
  std::uint64_t generation;
};

struct Registry {
  std::mutex mutex;
  std::vector<Entry> entries;
};

/// Never destroyed: stores of static storage duration close after it would be.
Registry& registry() {
  static Registry& made = *new Registry;
  return made;
}

/// The child gets the registry in a state of its own to use, whatever other threads did at the
/// fork.
const int fork_handlers =
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] { registry().mutex.unlock(); });

bool identify(const std::string& path, FileIdentity& file) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  file = FileIdentity{status.st_dev, status.st_ino};
  return true;
}

void refuse_inherited(const Registry& seen, const FileIdentity& file) {
  const auto inherited = [&](const Entry& entry) {
    return entry.file == file && entry.generation != fork_generation();
  };
  if (std::none_of(seen.entries.begin(), seen.entries.end(), inherited)) return;
  throw Error(
      Errc::used_after_fork,
      "the database file was open before fork(), so SQLite cannot use it in this child; fork "
      "before opening a store, or exec a program that opens one");
}

}  // namespace

FileIdentity identity_of(const std::string& path) {
  FileIdentity file;
  if (!identify(path, file)) {
    throw Error(Errc::store_unavailable, "the database file cannot be looked at", path);
  }
  return file;
}

void OpenFile::check(const std::string& path) {
  static_cast<void>(fork_handlers);
  FileIdentity file;
  if (!identify(path, file)) return;
  const std::scoped_lock lock(registry().mutex);
  refuse_inherited(registry(), file);
}

OpenFile::OpenFile(const std::string& path) : identity_(identity_of(path)) {
  const std::scoped_lock lock(registry().mutex);
  refuse_inherited(registry(), identity_);
  registry().entries.push_back(Entry{identity_, fork_generation()});
}

OpenFile::~OpenFile() {
  const std::scoped_lock lock(registry().mutex);
  auto& entries = registry().entries;
  const auto own = [&](const Entry& entry) {
    return entry.file == identity_ && entry.generation == fork_generation();
  };
  const auto found = std::find_if(entries.begin(), entries.end(), own);
  if (found != entries.end()) entries.erase(found);
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
