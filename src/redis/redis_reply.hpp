#pragma once

#include <hiredis/hiredis.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

struct ReplyDeleter {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using ReplyPtr = std::unique_ptr<redisReply, ReplyDeleter>;

/// Whether the connection that brought an error is of further use.
enum class ConnectionFate : std::uint8_t { keep, discard };

/// What an error reply means. The server wrote nothing in any of these cases.
struct ReplyMeaning {
  Errc code = Errc::store_refused;
  ConnectionFate fate = ConnectionFate::keep;
  friend bool operator==(const ReplyMeaning&, const ReplyMeaning&) = default;
};

/// How an error is known.
struct ReplyRow {
  enum class Place : std::uint8_t {
    at_the_start,  ///< of the error, or of the one that a script passes on: a word
    anywhere,
  };
  std::string_view text;
  ReplyMeaning meaning;
  Place place = Place::at_the_start;
};
[[nodiscard]] std::span<const ReplyRow> reply_rows() noexcept;

/// The meaning of an error reply, plain or wrapped by Redis 6 or 7 as a script's; unknown ones count as
/// refusals.
[[nodiscard]] ReplyMeaning meaning_of(std::string_view error) noexcept;

/// Whether the server does not have the script that EVALSHA named.
[[nodiscard]] bool is_noscript(const redisReply& reply) noexcept;
[[nodiscard]] bool is_error(const redisReply& reply) noexcept;

/// An error reply, thrown inside the room only: it becomes an `Error` where the call ends.
struct ErrorReply {
  /// Whether other commands of the same call have been executed.
  enum class Others : std::uint8_t { nothing_written, written };
  ReplyMeaning meaning;
  std::string words;
  Others others = Others::nothing_written;
};
/// Throws `ErrorReply` for an error.
void throw_if_error(const redisReply& reply);

[[nodiscard]] Error make_error(const ErrorReply& reply);

/// The parts of a reply, checked: `Errc::store_corrupt` when the server answered in another form.
[[nodiscard]] std::optional<std::string_view> as_text(const redisReply& reply);
[[nodiscard]] std::int64_t as_integer(const redisReply& reply);
[[nodiscard]] const redisReply& element(const redisReply& reply, std::size_t index);

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
