#pragma once

#include <chrono>
#include <idempotency/idempotency.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace idempotencyctl {

namespace idem = idempotency;
/// Members in the order in which they are written.
using Json = nlohmann::ordered_json;

/// "500ms", "30s", "15m", "2h", "30d". Throws `Ending` (usage) for anything else.
[[nodiscard]] std::chrono::milliseconds parse_duration(std::string_view text);
/// `type:value`. Throws `Ending` (usage) for what is no key.
[[nodiscard]] idem::Key parse_key(std::string_view text);

/// "2026-11-30T10:15:00.123Z".
[[nodiscard]] std::string to_text(idem::Timestamp time);
/// About: "12ms", "3.4s", "5m", "7h", "30d".
[[nodiscard]] std::string to_text(std::chrono::milliseconds span);
/// Fit for a terminal: control characters and bytes that are no UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text);
[[nodiscard]] std::string hex_of(std::string_view bytes);
/// What `hex_of` was given. Throws `Ending` (usage) for what it never gives.
[[nodiscard]] std::string from_hex(std::string_view digits);
/// UTF-8 without control characters, but for tabs and ends of lines.
[[nodiscard]] bool is_text(std::string_view bytes) noexcept;
/// Throws `Ending` (usage) for what is no state; empty: none.
[[nodiscard]] std::optional<idem::RecordState> parse_state(std::string_view text);

/// What a file holds. Throws `Ending` (usage) when it cannot be read.
[[nodiscard]] std::string bytes_of(const std::string& file);

/// One line; bytes that are no UTF-8 are replaced.
[[nodiscard]] std::string line_of(const Json& value);
/// A record with all that it holds, but for the bytes of its result.
[[nodiscard]] Json to_json(const idem::Record& record);
[[nodiscard]] Json to_json(const idem::StoreStatistics& statistics);
[[nodiscard]] Json to_json(const idem::RecordPage::Unreadable& unreadable);

/// Prints rows below a heading, in columns as wide as needed.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace idempotencyctl
