// Calls to two replicas of a gRPC service, over each real store.

#include <gtest/gtest.h>

#include <string>

#include "idempotency/stores/open.hpp"
#include "support/grpc_shop.hpp"
#include "support/real_store.hpp"

namespace idempotency {
namespace {

using grpc::StatusCode;
using testing_support::GrpcCharge;
using testing_support::GrpcShop;
using testing_support::local_grpc_channel;
using testing_support::LocalGrpcServer;
using testing_support::RealStore;
using testing_support::StoreKind;

void expect_one_effect(const std::shared_ptr<grpc::Channel>& here,
                       const std::shared_ptr<grpc::Channel>& there) {
  GrpcCharge first("k");
  GrpcCharge second("\"k\"");
  GrpcCharge other("k");
  other.request.set_cents(999);
  GrpcCharge bobs("k", "bob");

  EXPECT_EQ(first.send(here).reply.id(), "charge-1") << first.status.error_message();
  EXPECT_EQ(second.send(there).reply.id(), "charge-1") << second.status.error_message();
  EXPECT_TRUE(second.is_replay());
  EXPECT_EQ(second.reply.cents(), 100);
  EXPECT_EQ(second.reply.labels_size(), 3);
  EXPECT_EQ(other.send(there).status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_FALSE(bobs.send(here).is_replay());
}

void expect_replayed_refusals(GrpcShop<AnyStore>& shop, const std::shared_ptr<grpc::Channel>& here,
                              const std::shared_ptr<grpc::Channel>& there) {
  shop.handler = [](const auto&, auto&) {
    return grpc::Status(StatusCode::NOT_FOUND, "no such order", std::string("\0details", 8));
  };
  GrpcCharge refused("r");
  GrpcCharge again("r");
  EXPECT_EQ(refused.send(here).status.error_code(), StatusCode::NOT_FOUND);
  again.send(there);
  EXPECT_TRUE(again.is_replay());
  EXPECT_EQ(again.status.error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(again.status.error_message(), "no such order");
  EXPECT_EQ(again.status.error_details(), std::string("\0details", 8));
}

void expect_all_of_it(AnyStore& one, AnyStore& other) {
  GrpcShop<AnyStore> shop_here(one);
  GrpcShop<AnyStore> shop_there(other);
  const LocalGrpcServer server_here(shop_here);
  const LocalGrpcServer server_there(shop_there);
  const auto here = local_grpc_channel(server_here.port());
  const auto there = local_grpc_channel(server_there.port());

  expect_one_effect(here, there);
  EXPECT_EQ(shop_here.effects, 2);
  EXPECT_EQ(shop_there.effects, 0);
  expect_replayed_refusals(shop_here, here, there);
}

TEST(GrpcOverOneStore, ReplaysFromMemory) {
  AnyStore store = open_store("memory:");
  expect_all_of_it(store, store);
}

class GrpcOverEachStore : public ::testing::TestWithParam<StoreKind> {};

TEST_P(GrpcOverEachStore, Replays) {
  const RealStore real(GetParam());
  AnyStore here = open_store(real.address());
  AnyStore there = open_store(real.address());
  expect_all_of_it(here, there);
}

INSTANTIATE_TEST_SUITE_P(Stores, GrpcOverEachStore,
                         ::testing::Values(StoreKind::sqlite, StoreKind::redis, StoreKind::mariadb),
                         testing_support::name_of);

}  // namespace
}  // namespace idempotency
