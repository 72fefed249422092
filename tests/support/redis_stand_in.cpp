#include "support/redis_stand_in.hpp"

#include <hiredis/hiredis.h>

#include <array>
#include <string_view>
#include <utility>

namespace idempotency::testing_support {

namespace {

struct FreeReader {
  void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
};
struct FreeReply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};

void answer_all(const Socket& client, const Socket& ended, const RedisStandIn::Answer& answer) {
  const std::unique_ptr<redisReader, FreeReader> reader(redisReaderCreate());
  std::array<char, 16384> buffer{};
  while (true) {
    void* parsed = nullptr;
    if (redisReaderGetReply(reader.get(), &parsed) != REDIS_OK) return;
    if (parsed == nullptr) {
      if (!wait_to_read(client, {}, ended)) return;
      const std::string_view bytes = client.receive(buffer);
      if (bytes.empty()) return;
      if (redisReaderFeed(reader.get(), bytes.data(), bytes.size()) != REDIS_OK) return;
      continue;
    }
    const std::unique_ptr<redisReply, FreeReply> command(static_cast<redisReply*>(parsed));
    std::vector<std::string> words;
    for (std::size_t i = 0; i < command->elements; ++i)
      words.emplace_back(command->element[i]->str, command->element[i]->len);
    const std::string reply = answer(words);
    if (reply.empty() || !client.send(reply)) return;
  }
}

/// The same reply with another version in it, when it is a greeting.
std::string with_version(std::string_view reply, const std::string& version) {
  std::string text(reply);
  constexpr std::string_view name = "$7\r\nversion\r\n$";
  const std::size_t at = text.find(name);
  if (at == std::string::npos) return text;
  const std::size_t begin = at + name.size();
  const std::size_t end = text.find("\r\n", text.find("\r\n", begin) + 2);
  return text.replace(begin, end - begin, std::to_string(version.size()) + "\r\n" + version);
}

void relay(const Socket& client, const Socket& ended, std::uint16_t server_port,
           const std::string& version) {
  const Socket server = connected_to(server_port);
  if (!server) return;
  std::array<char, 16384> buffer{};
  while (const auto readable = wait_to_read(client, server, ended)) {
    const std::string_view bytes = (readable->first ? client : server).receive(buffer);
    if (bytes.empty()) return;
    const bool sent =
        readable->first ? server.send(bytes) : client.send(with_version(bytes, version));
    if (!sent) return;
  }
}

}  // namespace

RedisStandIn::RedisStandIn(Answer answer)
    : server_([answer = std::move(answer)](const Socket& client, const Socket& ended) {
        answer_all(client, ended, answer);
      }) {}

RedisStandIn::RedisStandIn(std::uint16_t server_port, std::string version)
    : server_(
          [server_port, version = std::move(version)](const Socket& client, const Socket& ended) {
            relay(client, ended, server_port, version);
          }) {}

std::unique_ptr<RedisStandIn> RedisStandIn::of_version(std::uint16_t server_port,
                                                       std::string version) {
  return std::unique_ptr<RedisStandIn>(new RedisStandIn(server_port, std::move(version)));
}

}  // namespace idempotency::testing_support
