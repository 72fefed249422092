#include "idempotency/operations/prometheus.hpp"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/text_serializer.h>

#include <fstream>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idempotency/guard.hpp"
#include "idempotency/stores/breaker.hpp"
#include "idempotency/stores/memory.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/faulty_store.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using testing_support::code_of;

using Labels = std::set<std::pair<std::string, std::string>>;

/// The metric of a name with exactly these labels.
const ClientMetric* metric_of(const std::vector<MetricFamily>& families, const std::string& name,
                              const Labels& labels) {
  for (const MetricFamily& family : families) {
    if (family.name != name) continue;
    for (const ClientMetric& metric : family.metric) {
      Labels found;
      for (const auto& label : metric.label)
        found.emplace(label.name, label.value);
      if (found == labels) return &metric;
    }
  }
  return nullptr;
}

class PrometheusObserverTest : public ::testing::Test {
 protected:
  double counter(const std::string& name, const Labels& labels) {
    families_ = registry_->Collect();
    const ClientMetric* metric = metric_of(families_, name, labels);
    return metric == nullptr ? -1 : metric->counter.value;
  }
  std::uint64_t observations(const std::string& name, const Labels& labels) {
    families_ = registry_->Collect();
    const ClientMetric* metric = metric_of(families_, name, labels);
    return metric == nullptr ? std::numeric_limits<std::uint64_t>::max()
                             : metric->histogram.sample_count;
  }

  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::vector<MetricFamily> families_;
};

TEST_F(PrometheusObserverTest, CountsRunsByTypeAndOutcomeAndTimesThem) {
  PrometheusObserver metrics(registry_);
  MemoryStore store;
  IdempotencyGuard guard{store, {.observer = &metrics}};
  const auto charge = [] { return 7; };

  for (int call = 0; call < 3; ++call)
    static_cast<void>(guard.run({.key = {"payment", "order-7"}}, charge));

  EXPECT_EQ(counter("idempotency_runs_total", {{"type", "payment"}, {"outcome", "executed"}}), 1);
  EXPECT_EQ(counter("idempotency_runs_total", {{"type", "payment"}, {"outcome", "replayed"}}), 2);
  EXPECT_EQ(counter("idempotency_runs_total", {{"type", "payment"}, {"outcome", "mismatch"}}), 0);
  EXPECT_EQ(observations("idempotency_run_duration_seconds", {{"type", "payment"}}), 3U);
  EXPECT_EQ(observations("idempotency_handler_duration_seconds", {{"type", "payment"}}), 1U);
  EXPECT_EQ(observations("idempotency_wait_duration_seconds", {{"type", "payment"}}), 0U);
  EXPECT_EQ(observations("idempotency_store_call_duration_seconds", {{"call", "begin"}}), 3U);
  EXPECT_EQ(observations("idempotency_store_call_duration_seconds", {{"call", "complete"}}), 1U);
}

TEST_F(PrometheusObserverTest, CountsExceptionsOfHandlersByWhatTheySay) {
  PrometheusObserver metrics(registry_);
  MemoryStore store;
  IdempotencyGuard guard{store, {.observer = &metrics}};
  const auto decline = []() -> int { throw PermanentFailure("declined"); };

  EXPECT_EQ(code_of([&] {
              static_cast<void>(guard.run({.key = {"payment", "a"}}, decline));
            }),
            Errc::permanent_failure);
  static_cast<void>(guard.run({.key = {"payment", "a"}}, decline));

  EXPECT_EQ(counter("idempotency_handler_exceptions_total",
                    {{"type", "payment"}, {"disposition", "permanent"}}),
            1);
  EXPECT_EQ(counter("idempotency_runs_total", {{"type", "payment"}, {"outcome", "failed"}}), 1);
  EXPECT_EQ(observations("idempotency_handler_duration_seconds", {{"type", "payment"}}), 1U);
}

TEST_F(PrometheusObserverTest, TimesHowLongACallWaitedForAnother) {
  PrometheusObserver metrics(registry_);
  MemoryStore memory;
  testing::FaultyStore store{memory};
  IdempotencyGuard guard{memory};
  IdempotencyGuard waiting{store, {.observer = &metrics}};
  const Operation operation{.key = {"report", "r"}, .policy = {.wait = std::chrono::seconds{60}}};
  std::promise<void> started;
  std::promise<void> is_awaited;
  std::once_flag once;
  store.on(StoreCall::begin).after([&] { std::call_once(once, [&] { is_awaited.set_value(); }); });

  auto first = std::async(std::launch::async, [&] {
    return guard
        .run(operation,
             [&] {
               started.set_value();
               is_awaited.get_future().wait();
               return 1;
             })
        .status();
  });
  started.get_future().wait();
  const RunStatus second = waiting.run(operation, [] { return 2; }).status();

  EXPECT_EQ(first.get(), RunStatus::executed);
  EXPECT_EQ(second, RunStatus::replayed);
  const std::uint64_t waits =
      observations("idempotency_wait_duration_seconds", {{"type", "report"}});
  EXPECT_GE(waits, 1U);
  EXPECT_NE(waits, std::numeric_limits<std::uint64_t>::max());
}

TEST_F(PrometheusObserverTest, CountsStoreErrorsByCallAndCode) {
  PrometheusObserver metrics(registry_);
  MemoryStore memory;
  testing::FaultyStore store{memory};
  store.on(StoreCall::begin).fail_next(1, testing::Fault::request_lost);
  IdempotencyGuard guard{store, {.observer = &metrics}};

  EXPECT_EQ(guard.run({.key = {"payment", "a"}}, [] { return 1; }).status(), RunStatus::executed);

  EXPECT_EQ(
      counter("idempotency_store_errors_total", {{"call", "begin"}, {"code", "store_unavailable"}}),
      1);
  EXPECT_EQ(observations("idempotency_wait_duration_seconds", {{"type", "payment"}}), 0U);
}

TEST_F(PrometheusObserverTest, TimesWhatATransactionsRecordCosts) {
  PrometheusObserver metrics(registry_);
  const testing_support::TemporaryFolder folder;
  SqliteStore store{{.path = folder.file("records.db")}};
  IdempotencyGuard guard{store, {.observer = &metrics}};
  const auto nothing = [](SqliteTransaction&) { return 1; };

  static_cast<void>(guard.run_in_transaction({.key = {"transfer", "t"}}, nothing));

  for (const char* call : {"begin", "complete", "commit"}) {
    EXPECT_EQ(observations("idempotency_store_call_duration_seconds", {{"call", call}}), 1U)
        << call;
  }
  EXPECT_EQ(observations("idempotency_handler_duration_seconds", {{"type", "transfer"}}), 1U);
}

TEST_F(PrometheusObserverTest, CountsWhatHappensToLeasesAndSettlements) {
  PrometheusObserver metrics(registry_);
  const Key key("payment", "a");

  metrics.on_lease_renewed(key, 1);
  metrics.on_lease_renewed(key, 1);
  metrics.on_lease_lost(key, 1);
  metrics.on_settled_behind(key, "given up");
  metrics.on_resolved(key, "retry");
  metrics.on_hazard("no persistence");

  EXPECT_EQ(counter("idempotency_lease_renewals_total", {{"type", "payment"}}), 2);
  EXPECT_EQ(counter("idempotency_leases_lost_total", {{"type", "payment"}}), 1);
  EXPECT_EQ(
      counter("idempotency_settled_behind_total", {{"type", "payment"}, {"outcome", "given up"}}),
      1);
  EXPECT_EQ(counter("idempotency_resolved_total", {{"type", "payment"}, {"verdict", "retry"}}), 1);
  EXPECT_EQ(counter("idempotency_hazards_total", {}), 1);
}

TEST_F(PrometheusObserverTest, ShowsTheStateOfEachBreaker) {
  PrometheusObserver metrics(registry_, {.labels = {{"service", "payments"}}});
  MemoryStore memory;
  testing::FaultyStore<MemoryStore> faulty{memory};
  BreakerStore first{faulty, {.failure_threshold = 1, .name = "first", .observer = &metrics}};
  const BreakerStore<MemoryStore> second(memory, {.name = "second", .observer = &metrics});
  const auto states = [&](const std::string& breaker) {
    families_ = registry_->Collect();
    std::string all;
    for (const char* state : {"closed", "open", "half_open"}) {
      const ClientMetric* metric =
          metric_of(families_, "idempotency_breaker_state",
                    {{"service", "payments"}, {"breaker", breaker}, {"state", state}});
      all += metric == nullptr ? "-" : metric->gauge.value == 1 ? "1" : "0";
    }
    return all;
  };
  EXPECT_EQ(states("first"), "100");

  faulty.on(StoreCall::begin).fail_next(1, testing::Fault::request_lost);
  EXPECT_EQ(code_of([&] {
              static_cast<void>(first.begin({.key = {"payment", "a"}, .owner = {}}));
            }),
            Errc::store_unavailable);

  EXPECT_EQ(states("first"), "010");
  EXPECT_EQ(states("second"), "100");
}

// What begins at 1 has no increase: `increase()` and `rate()` need to have seen the 0.
TEST_F(PrometheusObserverTest, HasTheCountersThatAlertsUseBeforeAnythingHappens) {
  PrometheusObserver metrics(registry_, {.labels = {{"service", "shop"}}, .types = {"payment"}});

  for (const char* disposition : {"retryable", "permanent", "uncertain"}) {
    EXPECT_EQ(counter("idempotency_handler_exceptions_total",
                      {{"service", "shop"}, {"type", "payment"}, {"disposition", disposition}}),
              0)
        << disposition;
  }
  for (const char* outcome : {"recorded", "lost", "given up"}) {
    EXPECT_EQ(counter("idempotency_settled_behind_total",
                      {{"service", "shop"}, {"type", "payment"}, {"outcome", outcome}}),
              0)
        << outcome;
  }
  for (const char* verdict : {"succeeded", "failed", "retry"}) {
    EXPECT_EQ(counter("idempotency_resolved_total",
                      {{"service", "shop"}, {"type", "payment"}, {"verdict", verdict}}),
              0)
        << verdict;
  }
  for (const char* code : {"store_unavailable", "store_busy", "store_full", "store_corrupt"}) {
    EXPECT_EQ(counter("idempotency_store_errors_total",
                      {{"service", "shop"}, {"call", "begin"}, {"code", code}}),
              0)
        << code;
  }
  EXPECT_EQ(counter("idempotency_leases_lost_total", {{"service", "shop"}, {"type", "payment"}}),
            0);
}

TEST_F(PrometheusObserverTest, CountsOnInTheSeriesThatWereThere) {
  PrometheusObserver metrics(registry_, {.types = {"payment"}});
  const Key key("payment", "a");

  metrics.on_handler_threw(key, "uncertain");
  metrics.on_store_error(key, StoreCall::begin, Error(Errc::store_busy, "busy"), 1);
  metrics.on_settled_behind(key, "lost");

  EXPECT_EQ(counter("idempotency_handler_exceptions_total",
                    {{"type", "payment"}, {"disposition", "uncertain"}}),
            1);
  EXPECT_EQ(counter("idempotency_store_errors_total", {{"call", "begin"}, {"code", "store_busy"}}),
            1);
  EXPECT_EQ(counter("idempotency_settled_behind_total", {{"type", "payment"}, {"outcome", "lost"}}),
            1);
}

// The runs' metrics leave out what ended with an exception; the errors' have it.
TEST_F(PrometheusObserverTest, CountsAStoreThatCannotBeAskedAmongTheErrorsOnly) {
  PrometheusObserver metrics(registry_);
  MemoryStore memory;
  testing::FaultyStore store{memory};
  store.on(StoreCall::begin).fail_next(100, testing::Fault::request_lost);
  IdempotencyGuard guard{store, {.observer = &metrics}};

  EXPECT_EQ(code_of([&] {
              static_cast<void>(guard.run({.key = {"payment", "a"}}, [] { return 1; }));
            }),
            Errc::store_unavailable);

  EXPECT_EQ(observations("idempotency_run_duration_seconds", {{"type", "payment"}}),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_GE(
      counter("idempotency_store_errors_total", {{"call", "begin"}, {"code", "store_unavailable"}}),
      1);
}

TEST_F(PrometheusObserverTest, GivesTypesBeyondTheLimitOneTimeSeries) {
  PrometheusObserver metrics(registry_, {.labels = {{"service", "shop"}}, .most_types = 2});

  for (const char* type : {"a", "b", "c", "d", "a"})
    metrics.on_finished(Key(type, "k"), RunStatus::executed, std::chrono::nanoseconds{1});

  const auto executed = [&](const char* type) {
    return counter("idempotency_runs_total",
                   {{"service", "shop"}, {"type", type}, {"outcome", "executed"}});
  };
  EXPECT_EQ(executed("a"), 2);
  EXPECT_EQ(executed("b"), 1);
  EXPECT_EQ(executed("other"), 2);
  EXPECT_EQ(executed("c"), -1);
}

TEST_F(PrometheusObserverTest, NeverNamesAKey) {
  PrometheusObserver metrics(registry_);
  MemoryStore store;
  IdempotencyGuard guard{store, {.observer = &metrics}};

  static_cast<void>(guard.run({.key = {"payment", "secret-order"}}, [] { return 1; }));

  const std::string text = prometheus::TextSerializer().Serialize(registry_->Collect());
  EXPECT_NE(text.find("idempotency_runs_total{outcome=\"executed\",type=\"payment\"} 1"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("secret-order"), std::string::npos);
}

TEST_F(PrometheusObserverTest, RefusesOptionsThatCannotBe) {
  const auto refused = [&](PrometheusOptions options) {
    return code_of([&] { PrometheusObserver metrics(registry_, std::move(options)); });
  };

  EXPECT_EQ(refused({.buckets = {}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.buckets = {0.1, 0.1}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.buckets = {0.2, 0.1}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.buckets = {-1.0, 0.1}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.buckets = {std::numeric_limits<double>::quiet_NaN()}}),
            Errc::invalid_argument);
  EXPECT_EQ(refused({.labels = {{"type", "x"}}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.labels = {{"breaker", "x"}}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.most_types = 1, .types = {"a", "b"}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.labels = {{"le", "x"}}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.labels = {{"1st", "x"}}}), Errc::invalid_argument);
  EXPECT_EQ(refused({.labels = {{"__name", "x"}}}), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { PrometheusObserver metrics(nullptr); }), Errc::invalid_argument);
}

TEST_F(PrometheusObserverTest, SharesARegistryWithAnotherUnderItsOwnLabels) {
  PrometheusObserver payments(registry_, {.labels = {{"guard", "payments"}}});
  PrometheusObserver orders(registry_, {.labels = {{"guard", "orders"}}});

  payments.on_finished(Key("payment", "k"), RunStatus::executed, std::chrono::nanoseconds{1});
  orders.on_finished(Key("payment", "k"), RunStatus::replayed, std::chrono::nanoseconds{1});

  EXPECT_EQ(counter("idempotency_runs_total",
                    {{"guard", "payments"}, {"type", "payment"}, {"outcome", "executed"}}),
            1);
  EXPECT_EQ(counter("idempotency_runs_total",
                    {{"guard", "orders"}, {"type", "payment"}, {"outcome", "replayed"}}),
            1);
}

TEST_F(PrometheusObserverTest, RefusesARegistryThatUsesTheNamesForAnotherKind) {
  static_cast<void>(prometheus::BuildHistogram()
                        .Name("idempotency_runs_total")
                        .Help("not ours")
                        .Register(*registry_));

  EXPECT_EQ(code_of([&] { PrometheusObserver metrics(registry_); }), Errc::invalid_argument);
}

// A panel that asks for a metric that is not there stays empty, and nobody sees why.
TEST_F(PrometheusObserverTest, HasEveryMetricThatDashboardAndRulesAskFor) {
  PrometheusObserver metrics(registry_);
  MemoryStore store;
  const PrometheusRecords records(store);
  const Key key("payment", "a");
  metrics.on_handler_threw(key, "uncertain");  // what nobody has counted yet is not shown
  metrics.on_store_error(key, StoreCall::begin, Error(Errc::store_busy, "busy"), 1);
  metrics.on_settled_behind(key, "recorded");
  metrics.on_resolved(key, "retry");
  metrics.on_finished(key, RunStatus::executed, std::chrono::nanoseconds{1});
  metrics.on_breaker_changed("store", BreakerState::closed);
  std::set<std::string> known;
  for (const auto& families : {registry_->Collect(), records.Collect()}) {
    for (const MetricFamily& family : families) {
      known.insert(family.name);
      if (family.type != prometheus::MetricType::Histogram) continue;
      for (const char* part : {"_bucket", "_count", "_sum"})
        known.insert(family.name + part);
    }
  }
  const auto text_of = [](const char* name) {
    std::ifstream file(std::string(IDEMPOTENCY_GRAFANA) + name);
    return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  };
  const std::string dashboard = text_of("/idempotency.json");
  ASSERT_TRUE(nlohmann::json::accept(dashboard));

  std::size_t asked = 0;
  const std::regex name("idempotency_[a-z_]+");
  for (const std::string& text : {dashboard, text_of("/alerts.yaml")}) {
    for (std::sregex_iterator found(text.begin(), text.end(), name), end; found != end; ++found) {
      EXPECT_TRUE(known.contains(found->str())) << found->str();
      ++asked;
    }
  }

  EXPECT_GE(asked, 20U);
}

// Each replica counts the same store, so a sum over them multiplies what is there.
TEST(PrometheusRecords, AreNeverSummedOverReplicasByDashboardAndRules) {
  std::size_t asked = 0;
  const std::regex query(R"((\S* ?\S* ?\([a-z, ]*\) \()?idempotency_records(_up)?\b)");
  const std::regex of_replicas(R"(max by \(job, service, store(, state)?\) \()");
  for (const char* name : {"/idempotency.json", "/alerts.yaml"}) {
    std::ifstream file(std::string(IDEMPOTENCY_GRAFANA) + name);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (std::sregex_iterator found(text.begin(), text.end(), query), end; found != end; ++found) {
      EXPECT_TRUE(std::regex_search(found->str(1), of_replicas)) << name << ": " << found->str();
      ++asked;
    }
  }

  EXPECT_EQ(asked, 5U);
}

TEST(PrometheusRecords, CountsByStateAtAScrape) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  static_cast<void>(guard.run({.key = {"payment", "a"}}, [] { return 1; }));
  EXPECT_EQ(code_of([&] {
              static_cast<void>(guard.run({.key = {"payment", "b"}},
                                          []() -> int { throw OutcomeUnknown("no answer"); }));
            }),
            Errc::outcome_unknown);
  ASSERT_EQ(store.issue({.key = {"payment", "c"}, .issuer = OwnerToken::generate()}),
            WriteOutcome::stored);
  const PrometheusRecords records(store, std::chrono::milliseconds{0}, {{"store", "main"}});

  const std::vector<MetricFamily> families = records.Collect();

  const auto gauge = [&](const char* state) {
    const ClientMetric* metric =
        metric_of(families, "idempotency_records", {{"store", "main"}, {"state", state}});
    return metric == nullptr ? -1 : metric->gauge.value;
  };
  EXPECT_EQ(gauge("success"), 1);
  EXPECT_EQ(gauge("uncertain"), 1);
  EXPECT_EQ(gauge("processing"), 0);
  EXPECT_EQ(gauge("issued"), 1);
  EXPECT_EQ(metric_of(families, "idempotency_records_up", {{"store", "main"}})->gauge.value, 1);
}

TEST(PrometheusRecords, AnswersFromTheLastCountWithinTheInterval) {
  MemoryStore store;
  IdempotencyGuard guard{store};
  const PrometheusRecords records(store, std::chrono::hours{1});
  const auto count = [&] {
    const std::vector<MetricFamily> families = records.Collect();
    return metric_of(families, "idempotency_records", {{"state", "success"}})->gauge.value;
  };

  EXPECT_EQ(count(), 0);
  static_cast<void>(guard.run({.key = {"payment", "a"}}, [] { return 1; }));

  EXPECT_EQ(count(), 0);
}

TEST(PrometheusRecords, SaysThatAStoreCannotBeAsked) {
  struct Silent : MemoryStore {
    StoreStatistics statistics() { throw Error(Errc::store_unavailable, "no answer"); }
  } store;
  const PrometheusRecords records(store);

  const std::vector<MetricFamily> families = records.Collect();

  EXPECT_EQ(metric_of(families, "idempotency_records_up", {})->gauge.value, 0);
  EXPECT_EQ(metric_of(families, "idempotency_records", {{"state", "success"}}), nullptr);
}

}  // namespace
}  // namespace idempotency
