#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/edges/kafka.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::kafka {

struct Release {
  void operator()(rd_kafka_conf_t* conf) const noexcept { rd_kafka_conf_destroy(conf); }
  void operator()(rd_kafka_message_t* message) const noexcept { rd_kafka_message_destroy(message); }
  void operator()(rd_kafka_topic_partition_list_t* list) const noexcept {
    rd_kafka_topic_partition_list_destroy(list);
  }
  void operator()(rd_kafka_headers_t* headers) const noexcept { rd_kafka_headers_destroy(headers); }
  void operator()(rd_kafka_t* client) const noexcept { rd_kafka_destroy(client); }
  void operator()(rd_kafka_error_t* error) const noexcept { rd_kafka_error_destroy(error); }
  void operator()(rd_kafka_queue_t* queue) const noexcept { rd_kafka_queue_destroy(queue); }
};
using ConfPtr = std::unique_ptr<rd_kafka_conf_t, Release>;
using MessagePtr = std::unique_ptr<rd_kafka_message_t, Release>;
using ListPtr = std::unique_ptr<rd_kafka_topic_partition_list_t, Release>;
using HeadersPtr = std::unique_ptr<rd_kafka_headers_t, Release>;
using ClientPtr = std::unique_ptr<rd_kafka_t, Release>;
using ErrorPtr = std::unique_ptr<rd_kafka_error_t, Release>;
using QueuePtr = std::unique_ptr<rd_kafka_queue_t, Release>;

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Errors: `Errc::invalid_argument` for a property that librdkafka does not take.
[[nodiscard]] ConfPtr make_conf(const Settings& settings);
/// Takes the configuration over. Errors: the same.
[[nodiscard]] ClientPtr make_client(rd_kafka_type_t type, ConfPtr conf);
[[nodiscard]] ListPtr one_partition(const rd_kafka_message_t& message);
/// Whether the brokers will answer the same until somebody changes the set-up.
[[nodiscard]] bool is_refusal(rd_kafka_resp_err_t error) noexcept;
[[noreturn]] void throw_error(rd_kafka_resp_err_t error, std::string_view words);

/// Produces dead letters and waits for their confirmation.
class Producer {
 public:
  explicit Producer(const KafkaOptions& options);

  /// `headers` are taken over. Errors: `Errc::store_unavailable`, `Errc::store_refused`.
  void produce(const std::string& topic, const rd_kafka_message_t& original, HeadersPtr headers);

 private:
  ClientPtr client_;
};

}  // namespace detail::kafka
}  // namespace v0
}  // namespace idempotency
