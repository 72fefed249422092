#include "text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "settings.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;

namespace {

/// The length of the UTF-8 sequence at the beginning; 0 where there is none.
std::size_t sequence_at(std::string_view text) noexcept {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t length = first < 0x80U   ? 1
                             : first < 0xc2U ? 0
                             : first < 0xe0U ? 2
                             : first < 0xf0U ? 3
                             : first < 0xf5U ? 4
                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; };
  return std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length),
                     continues)
             ? length
             : 0;
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = sequence_at(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// How many columns a text takes, about.
std::size_t width_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

}  // namespace

milliseconds parse_duration(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  std::int64_t factor = 0;
  if (unit == "ms") factor = 1;
  if (unit == "s") factor = 1'000;
  if (unit == "m") factor = 60'000;
  if (unit == "h") factor = 3'600'000;
  if (unit == "d") factor = 86'400'000;
  constexpr std::int64_t longest = std::int64_t{86'400'000} * 365 * 100;
  if (problem != std::errc{} || factor == 0 || number < 0 || number > longest / factor) {
    throw Ending(Exit::usage, "'" + printable(text) +
                                  "' is no duration: a number with ms, s, m, h or d, such as 5m");
  }
  return milliseconds{number * factor};
}

idem::Key parse_key(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw Ending(Exit::usage, "'" + printable(text) + "' is no key: TYPE:VALUE");
  }
  try {
    return {text.substr(0, colon), text.substr(colon + 1)};
  } catch (const idem::Error& error) {
    throw Ending(Exit::usage, "'" + printable(text) + "' is no key: " + error.what());
  }
}

std::string to_text(idem::Timestamp time) {
  const auto milliseconds_of = time.time_since_epoch().count();
  const std::time_t seconds = static_cast<std::time_t>(milliseconds_of / 1'000);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "far away";
  char date[40];
  const std::size_t length = std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%03dZ", static_cast<int>(milliseconds_of % 1'000));
  return std::string(date, length) + fraction;
}

std::string to_text(milliseconds span) {
  const std::int64_t count = span.count();
  if (count < 0) return "-" + to_text(-span);
  if (count < 1'000) return std::to_string(count) + "ms";
  if (count < 60'000) {
    return std::to_string(count / 1'000) + "." + std::to_string(count % 1'000 / 100) + "s";
  }
  if (count < 3'600'000) return std::to_string(count / 60'000) + "m";
  if (count < 2 * 86'400'000) return std::to_string(count / 3'600'000) + "h";
  return std::to_string(count / 86'400'000) + "d";
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = sequence_at(text);
    const auto first = static_cast<unsigned char>(text.front());
    // C1 controls are two bytes, of which the first is 0xc2.
    const bool is_control =
        first < 0x20U || first == 0x7fU ||
        (length == 2 && first == 0xc2U && static_cast<unsigned char>(text[1]) < 0xa0U);
    const std::size_t taken = std::max<std::size_t>(length, 1);
    shown += length == 0 || is_control ? "?" : std::string(text.substr(0, taken));
    text.remove_prefix(taken);
  }
  return shown;
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += digits[static_cast<unsigned char>(byte) >> 4U];
    text += digits[static_cast<unsigned char>(byte) & 0x0fU];
  }
  return text;
}

std::string from_hex(std::string_view digits) {
  const auto value_of = [](char digit) -> unsigned {
    if (digit >= '0' && digit <= '9') return static_cast<unsigned>(digit - '0');
    if (digit >= 'a' && digit <= 'f') return static_cast<unsigned>(digit - 'a') + 10U;
    throw Ending(Exit::usage, "these are no hexadecimal digits");
  };
  if (digits.size() % 2 != 0) throw Ending(Exit::usage, "there is half a byte too much");
  std::string bytes;
  for (std::size_t at = 0; at < digits.size(); at += 2) {
    bytes += static_cast<char>(value_of(digits[at]) << 4U | value_of(digits[at + 1]));
  }
  return bytes;
}

bool is_text(std::string_view bytes) noexcept {
  const auto is_control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20U && c != '\t' && c != '\n' && c != '\r') || byte == 0x7fU;
  };
  return is_utf8(bytes) && std::none_of(bytes.begin(), bytes.end(), is_control);
}

std::optional<idem::RecordState> parse_state(std::string_view text) {
  if (text.empty()) return std::nullopt;
  for (const auto state :
       {idem::RecordState::processing, idem::RecordState::success, idem::RecordState::failed,
        idem::RecordState::uncertain, idem::RecordState::issued}) {
    if (text == idem::to_string(state)) return state;
  }
  throw Ending(Exit::usage, "'" + printable(text) +
                                "' is no state: processing, success, failed, uncertain or issued");
}

std::string line_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const idem::Record& record) {
  Json json{{"key", record.key.text()},
            {"type", std::string(record.key.type())},
            {"value", std::string(record.key.value())},
            {"state", std::string(idem::to_string(record.state))},
            {"mode", std::string(idem::to_string(record.mode))},
            {"effect_marked", record.effect_marked},
            {"fence", record.ownership.fence},
            {"attempt", record.attempt},
            {"created_at", to_text(record.created_at)},
            {"updated_at", to_text(record.updated_at)}};
  if (!is_utf8(record.key.text())) json["key_hex"] = hex_of(record.key.text());
  if (record.lease_until) json["lease_until"] = to_text(*record.lease_until);
  if (record.expires_at) json["expires_at"] = to_text(*record.expires_at);
  if (record.fingerprint) json["fingerprint_scheme"] = record.fingerprint->scheme;
  if (record.result) json["result_bytes"] = record.result->size();
  if (record.failure) {
    const bool retryable = record.failure->retryability == idem::Retryability::retryable;
    json["failure"] = {{"retryable", retryable}, {"reason", record.failure->reason}};
  }
  if (!record.trace.empty()) json["trace"] = record.trace;
  return json;
}

std::string bytes_of(const std::string& file) {
  try {
    std::ifstream stream(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (stream) return bytes;
  } catch (const std::ios_base::failure&) {  // what libstdc++ says of a folder, asked for or not
  }
  throw Ending(Exit::usage, "cannot read " + printable(file));
}

Json to_json(const idem::StoreStatistics& statistics) {
  return {{"processing", statistics.processing}, {"success", statistics.success},
          {"failed", statistics.failed},         {"uncertain", statistics.uncertain},
          {"issued", statistics.issued},         {"bytes", statistics.bytes}};
}

Json to_json(const idem::RecordPage::Unreadable& unreadable) {
  Json json{{"key", unreadable.key.text()}, {"why", unreadable.why}};
  if (!is_utf8(unreadable.key.text())) json["key_hex"] = hex_of(unreadable.key.text());
  return json;
}

void Table::print() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], width_of(row[column]));
  }
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      line += row[column];
      if (column + 1 == row.size()) break;
      line.append(widths[column] - width_of(row[column]) + 2, ' ');
    }
    std::cout << line << '\n';
  }
  std::cout << std::flush;
}

}  // namespace idempotencyctl
