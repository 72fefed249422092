#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/stores/redis.hpp"
#include "redis/redis_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::redis::Commands;
using detail::redis::Connection;
using detail::redis::is_noscript;
using detail::redis::ReplyPtr;
using detail::redis::StoreImpl;
using detail::redis::throw_if_error;

namespace {

constexpr std::size_t longest_part = 64;

std::string sha1_of(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) {
    throw Error(Errc::store_refused,
                "libcrypto offers no SHA-1, by which Redis names its scripts (they are no secret)");
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += digits[digest[i] >> 4];
    hex += digits[digest[i] & 0x0f];
  }
  return hex;
}

bool is_part_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

RedisReply to_reply(const redisReply& reply) {
  throw_if_error(reply);
  switch (reply.type) {
    case REDIS_REPLY_NIL:
      return RedisReply();
    case REDIS_REPLY_INTEGER:
      return RedisReply(std::int64_t{reply.integer});
    case REDIS_REPLY_ARRAY: {
      RedisReply::List list;
      list.reserve(reply.elements);
      for (std::size_t at = 0; at < reply.elements; ++at)
        list.push_back(to_reply(*reply.element[at]));
      return RedisReply(std::move(list));
    }
    default:
      return RedisReply(std::string(detail::redis::as_text(reply).value_or("")));
  }
}

/// The script's answer, and that to WAIT behind it.
RedisReply run_and_wait(Connection& connection, const RedisScript& script,
                        const Commands::Words& behind, const RedisScriptOptions& options) {
  const std::string replicas = std::to_string(options.replicas);
  const std::string patience = std::to_string(options.replica_wait.count());
  const auto exchange = [&](Connection::Naming naming) {
    Commands commands;
    Connection::add_script(commands, script, behind, naming);
    commands.add({"WAIT", replicas, patience});
    return connection.exchange(commands);
  };
  std::vector<ReplyPtr> replies = exchange(Connection::Naming::sha1);
  if (is_noscript(*replies.front())) replies = exchange(Connection::Naming::text);
  RedisReply::List list{to_reply(*replies.front())};
  try {
    list.push_back(to_reply(*replies.back()));
  } catch (detail::redis::ErrorReply& error) {
    error.others = detail::redis::ErrorReply::Others::written;
    throw;
  }
  return RedisReply(std::move(list));
}

}  // namespace

RedisScript::RedisScript(std::string body) : body_(std::move(body)), sha1_(sha1_of(body_)) {}

RedisReply RedisStore::run_script(const RedisScript& script, const RedisWords& keys,
                                  const RedisWords& arguments, const RedisScriptOptions& options) {
  if (options.replica_wait < std::chrono::milliseconds{1}) {
    throw Error(Errc::invalid_argument, "replicas are waited for 1 ms or longer");
  }
  const std::string count = std::to_string(keys.size());
  Commands::Words behind;
  behind.reserve(1 + keys.size() + arguments.size());
  behind.emplace_back(count);
  behind.insert(behind.end(), keys.begin(), keys.end());
  behind.insert(behind.end(), arguments.begin(), arguments.end());
  const auto effect = options.effect == RedisScriptEffect::reads ? StoreImpl::Effect::reads
                                                                 : StoreImpl::Effect::writes;
  return impl_->call(effect, [&](Connection& connection) {
    if (options.replicas != 0) return run_and_wait(connection, script, behind, options);
    return to_reply(*connection.run(script, behind));
  });
}

std::string RedisStore::name_for(const Key& key, std::string_view part) const {
  if (part.empty() || part.size() > longest_part ||
      !std::all_of(part.begin(), part.end(), is_part_character)) {
    throw Error(Errc::invalid_argument,
                "what stands behind a key in a name is 1 to 64 letters, digits, '_' and '-'",
                std::string(part));
  }
  std::string name = impl_->key_of(key);  // ends with '}', as no other name does
  name += ':';
  name += part;
  return name;
}

}  // namespace v0
}  // namespace idempotency
