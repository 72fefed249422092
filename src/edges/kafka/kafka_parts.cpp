#include "edges/kafka/kafka_parts.hpp"

#include <array>
#include <optional>

namespace idempotency {
inline namespace v0 {
namespace detail::kafka {

namespace {

/// What became of a message that is produced, where its delivery report finds it.
struct Delivery {
  std::optional<rd_kafka_resp_err_t> result = std::nullopt;
};

void on_delivered(rd_kafka_t* /*client*/, const rd_kafka_message_t* message, void* /*opaque*/) {
  static_cast<Delivery*>(message->_private)->result = message->err;
}

/// The library's words go where the caller's errors go, not to the standard error.
void be_silent(const rd_kafka_t* /*client*/, int /*level*/, const char* /*facility*/,
               const char* /*words*/) {}

}  // namespace

ConfPtr make_conf(const Settings& settings) {
  ConfPtr conf(rd_kafka_conf_new());
  for (const auto& [name, value] : settings) {
    std::array<char, 512> words{};
    if (rd_kafka_conf_set(conf.get(), name.c_str(), value.c_str(), words.data(), words.size()) !=
        RD_KAFKA_CONF_OK) {
      throw Error(Errc::invalid_argument, "KafkaOptions: librdkafka does not take a setting",
                  words.data());
    }
  }
  rd_kafka_conf_set_log_cb(conf.get(), be_silent);
  return conf;
}

ClientPtr make_client(rd_kafka_type_t type, ConfPtr conf) {
  std::array<char, 512> words{};
  ClientPtr client(rd_kafka_new(type, conf.get(), words.data(), words.size()));
  if (!client) {
    throw Error(Errc::invalid_argument, "KafkaOptions: librdkafka cannot work with the settings",
                words.data());
  }
  static_cast<void>(conf.release());  // the client owns it now
  return client;
}

ListPtr one_partition(const rd_kafka_message_t& message) {
  ListPtr list(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(list.get(), rd_kafka_topic_name(message.rkt),
                                    message.partition);
  return list;
}

bool is_refusal(rd_kafka_resp_err_t error) noexcept {
  switch (error) {
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_GROUP_ID:
    case RD_KAFKA_RESP_ERR__FATAL:
      return true;
    default:
      return false;
  }
}

void throw_error(rd_kafka_resp_err_t error, std::string_view words) {
  const std::string detail =
      std::string(rd_kafka_err2name(error)) + (words.empty() ? "" : ": ") + std::string(words);
  if (is_refusal(error)) {
    throw Error(Errc::store_refused,
                "kafka: the brokers refuse; look at credentials, rights and topics", detail);
  }
  throw Error(Errc::store_unavailable,
              "kafka: the brokers cannot do it now; what was not settled comes again", detail);
}

Producer::Producer(const KafkaOptions& options) {
  Settings settings;
  for (const auto& [name, value] : options.settings) {  // security is the same for both
    if (name.starts_with("security.") || name.starts_with("sasl.") || name.starts_with("ssl.") ||
        name.starts_with("socket.") || name.starts_with("reconnect.") || name == "client.id" ||
        name.starts_with("broker.address")) {
      settings.emplace_back(name, value);
    }
  }
  settings.emplace_back("bootstrap.servers", options.brokers);
  settings.emplace_back("acks", "all");
  settings.emplace_back("enable.idempotence", "true");
  settings.emplace_back("linger.ms", "0");
  settings.emplace_back("message.timeout.ms", std::to_string(options.produce_timeout.count()));
  ConfPtr conf = make_conf(settings);
  rd_kafka_conf_set_dr_msg_cb(conf.get(), on_delivered);
  client_ = make_client(RD_KAFKA_PRODUCER, std::move(conf));
}

void Producer::produce(const std::string& topic, const rd_kafka_message_t& original,
                       HeadersPtr headers) {
  Delivery delivery;
  std::array<rd_kafka_vu_t, 6> parts{};
  parts[0].vtype = RD_KAFKA_VTYPE_TOPIC;
  parts[0].u.cstr = topic.c_str();
  parts[1].vtype = RD_KAFKA_VTYPE_KEY;
  parts[1].u.mem = {original.key, original.key_len};
  parts[2].vtype = RD_KAFKA_VTYPE_VALUE;
  parts[2].u.mem = {original.payload, original.len};
  parts[3].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
  parts[3].u.i = RD_KAFKA_MSG_F_COPY;
  parts[4].vtype = RD_KAFKA_VTYPE_HEADERS;
  parts[4].u.headers = headers.get();
  parts[5].vtype = RD_KAFKA_VTYPE_OPAQUE;
  parts[5].u.ptr = &delivery;
  const ErrorPtr refused(rd_kafka_produceva(client_.get(), parts.data(), parts.size()));
  if (refused) throw_error(rd_kafka_error_code(refused.get()), "dead letter");
  static_cast<void>(headers.release());  // the message owns them now
  // There is always a report, at the latest when the message's time is over.
  while (!delivery.result) {
    constexpr int milliseconds = 100;
    rd_kafka_poll(client_.get(), milliseconds);
  }
  if (*delivery.result != RD_KAFKA_RESP_ERR_NO_ERROR) throw_error(*delivery.result, "dead letter");
}

}  // namespace detail::kafka
}  // namespace v0
}  // namespace idempotency
