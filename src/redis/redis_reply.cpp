#include "redis/redis_reply.hpp"

#include <array>

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

constexpr std::array rows{
    // Not the primary any more: others may have been promoted, so look again.
    ReplyRow{"READONLY", {Errc::store_unavailable, ConnectionFate::discard}},
    ReplyRow{"MASTERDOWN", {Errc::store_unavailable, ConnectionFate::discard}},
    ReplyRow{"CLUSTERDOWN", {Errc::store_unavailable, ConnectionFate::discard}},
    // For now.
    ReplyRow{"LOADING", {Errc::store_busy, ConnectionFate::discard}},
    ReplyRow{"NOSCRIPT", {Errc::store_busy, ConnectionFate::keep}},
    ReplyRow{"TRYAGAIN", {Errc::store_busy, ConnectionFate::keep}},
    ReplyRow{"BUSY", {Errc::store_busy, ConnectionFate::keep}},
    ReplyRow{"NOREPLICAS", {Errc::store_busy, ConnectionFate::keep}},
    ReplyRow{"MISCONF", {Errc::store_busy, ConnectionFate::keep}},
    ReplyRow{"OOM", {Errc::store_full, ConnectionFate::keep}},
    // Not by repeating.
    ReplyRow{"MOVED", {Errc::store_refused, ConnectionFate::keep}},
    ReplyRow{"ASK", {Errc::store_refused, ConnectionFate::keep}},
    ReplyRow{"CROSSSLOT", {Errc::store_refused, ConnectionFate::keep}},
    ReplyRow{"NOAUTH", {Errc::store_refused, ConnectionFate::discard}},
    ReplyRow{"WRONGPASS", {Errc::store_refused, ConnectionFate::discard}},
    ReplyRow{"NOPERM", {Errc::store_refused, ConnectionFate::keep}},
    ReplyRow{"DENIED", {Errc::store_refused, ConnectionFate::discard}},
    ReplyRow{"WRONGTYPE", {Errc::store_corrupt, ConnectionFate::keep}},
    ReplyRow{"CORRUPT", {Errc::store_corrupt, ConnectionFate::keep}},  // of our own scripts
    // Known by a part of what is said. A script that has written cannot be killed.
    ReplyRow{"Script killed by user",
             {Errc::store_busy, ConnectionFate::keep},
             ReplyRow::Place::anywhere},
    ReplyRow{"max number of clients",
             {Errc::store_busy, ConnectionFate::discard},
             ReplyRow::Place::anywhere},
    ReplyRow{
        "Protocol error", {Errc::too_large, ConnectionFate::discard}, ReplyRow::Place::anywhere},
};

std::string_view first_word(std::string_view text) noexcept {
  return text.substr(0, text.find(' '));
}

const ReplyRow* row_of(std::string_view word) noexcept {
  for (const ReplyRow& row : rows) {
    if (row.place == ReplyRow::Place::at_the_start && row.text == word) return &row;
  }
  return nullptr;
}

bool contains(std::string_view text, std::string_view part) noexcept {
  return text.find(part) != std::string_view::npos;
}

/// Redis 6 puts a command's error behind "ERR Error running script (call to f_<sha>): @user_script:<line>: ", with or
/// without '-'; 7 puts the script behind the error.
const ReplyRow* row_within(std::string_view error) noexcept {
  if (!contains(error, "script")) return nullptr;
  for (std::size_t at = error.find(": "); at != std::string_view::npos;
       at = error.find(": ", at + 1)) {
    std::string_view rest = error.substr(at + 2);
    if (rest.starts_with('-')) rest.remove_prefix(1);
    if (const ReplyRow* row = row_of(first_word(rest))) return row;
  }
  return nullptr;
}

std::string_view advice(Errc code) noexcept {
  switch (code) {
    case Errc::store_unavailable:
      return "redis store: the server is no primary that can answer now; repeat the call";
    case Errc::store_busy:
      return "redis store: the server refuses for now; repeat the call";
    case Errc::store_full:
      return "redis store: the server is out of memory and drops nothing; give it more, or shorten "
             "retentions";
    case Errc::store_corrupt:
      return "redis store: what stands under the key is no record of this library's; look at it";
    default:
      return "redis store: the server refuses; look at credentials, rights and set-up";
  }
}

[[noreturn]] void unexpected() {
  throw Error(Errc::store_corrupt, "redis store: the server answered in a form that is not Redis'");
}

}  // namespace

std::span<const ReplyRow> reply_rows() noexcept { return rows; }

ReplyMeaning meaning_of(std::string_view error) noexcept {
  const std::string_view word = first_word(error);
  if (const ReplyRow* row = row_of(word)) return row->meaning;
  if (const ReplyRow* row = row_within(error)) return row->meaning;
  for (const ReplyRow& row : rows) {
    if (row.place == ReplyRow::Place::anywhere && contains(error, row.text)) return row.meaning;
  }
  return {};
}

bool is_error(const redisReply& reply) noexcept { return reply.type == REDIS_REPLY_ERROR; }

bool is_noscript(const redisReply& reply) noexcept {
  return is_error(reply) && std::string_view(reply.str, reply.len).starts_with("NOSCRIPT");
}

void throw_if_error(const redisReply& reply) {
  if (!is_error(reply)) return;
  const std::string_view words(reply.str, reply.len);
  throw ErrorReply{meaning_of(words), std::string(words), ErrorReply::Others::nothing_written};
}

Error make_error(const ErrorReply& reply) {
  return Error(reply.meaning.code, std::string(advice(reply.meaning.code)), reply.words);
}

std::optional<std::string_view> as_text(const redisReply& reply) {
  if (reply.type == REDIS_REPLY_NIL) return std::nullopt;
  if (reply.type != REDIS_REPLY_STRING && reply.type != REDIS_REPLY_STATUS) unexpected();
  return std::string_view(reply.str, reply.len);
}

std::int64_t as_integer(const redisReply& reply) {
  if (reply.type != REDIS_REPLY_INTEGER) unexpected();
  return reply.integer;
}

const redisReply& element(const redisReply& reply, std::size_t index) {
  if (reply.type != REDIS_REPLY_ARRAY || index >= reply.elements) unexpected();
  return *reply.element[index];
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
