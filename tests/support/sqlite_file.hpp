#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "idempotency/clock.hpp"
#include "idempotency/stores/sqlite.hpp"

namespace idempotency::testing_support {

/// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "idempotency-sqlite-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// A clock that stands until it is moved.
class StandingClock final : public Clock {
 public:
  [[nodiscard]] Timestamp now() const noexcept override {
    return Timestamp{std::chrono::milliseconds{now_.load()}};
  }
  void advance(std::chrono::milliseconds span) noexcept { now_ += span.count(); }

 private:
  std::atomic<std::int64_t> now_{1'700'000'000'000};
};

/// A connection as an application has it, without the library.
class PlainConnection {
 public:
  explicit PlainConnection(const std::string& path) {
    if (sqlite3_open(path.c_str(), &handle_) != SQLITE_OK) ADD_FAILURE() << "cannot open " << path;
  }
  PlainConnection(const PlainConnection&) = delete;
  PlainConnection& operator=(const PlainConnection&) = delete;
  ~PlainConnection() { sqlite3_close_v2(handle_); }

  [[nodiscard]] sqlite3* handle() const noexcept { return handle_; }

  /// The result code; rows are dropped.
  int try_run(const std::string& sql) {
    return sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  }
  void run(const std::string& sql) {
    EXPECT_EQ(try_run(sql), SQLITE_OK) << sql << ": " << sqlite3_errmsg(handle_);
  }
  /// The first column of every row, as text.
  std::vector<std::string> column(const std::string& sql) {
    std::vector<std::string> values;
    const auto add = [](void* to, int, char** texts, char**) {
      static_cast<std::vector<std::string>*>(to)->emplace_back(texts[0] ? texts[0] : "NULL");
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(handle_, sql.c_str(), add, &values, nullptr), SQLITE_OK)
        << sql << ": " << sqlite3_errmsg(handle_);
    return values;
  }
  std::string ask(const std::string& sql) {
    const std::vector<std::string> values = column(sql);
    return values.empty() ? std::string() : values.front();
  }

 private:
  sqlite3* handle_ = nullptr;
};

/// A token that is told from others by `number`.
inline OwnerToken token(std::uint8_t number) {
  OwnerToken::Bytes bytes{};
  bytes.back() = number;
  return OwnerToken(bytes);
}

inline BeginRequest request(const std::string& value, std::uint8_t owner,
                            RecordMode mode = RecordMode::take_over) {
  return BeginRequest{.key = Key("payment", value),
                      .owner = token(owner),
                      .fingerprint = std::nullopt,
                      .mode = mode,
                      .lease = std::chrono::seconds{30}};
}

/// The code of an error that `fn` throws and the time it took.
template <class Fn>
std::chrono::milliseconds time_of(Fn&& fn) {
  const auto started = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               started);
}

}  // namespace idempotency::testing_support
