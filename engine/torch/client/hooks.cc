// What torch's libraries for processors ask about CUDA: CUDAHooksInterface.
#include "hooks.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <new>

#include "client/tensors/memory.h"
#include "client/kernels/random.h"

namespace eat {

namespace {

int64_t most_plans = 4096;  // as CUDA begins; the plans themselves are the server's

// Before the connection nobody has a tensor of the device, and the question must open nothing.
bool has_cudnn() {
  if (!device_count() || !is_connected(device_unconnected(-1))) return false;
  const Device& here = device(-1);
  return !here.processor && here.cudnn_version > 0;
}

class Hooks final : public at::CUDAHooksInterface {
 public:
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasCUDA() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return index < device_count() && is_connected(device_unconnected(index)); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(eat::current_device()); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return static_cast<c10::DeviceIndex>(set_current_device(index)); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK(false, "an address does not say whose memory of a leased GPU it is; give the tensor itself");
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
  std::string showConfig() const override { return "CUDA of a leased GPU"; }
  int64_t cuFFTGetPlanCacheMaxSize(c10::DeviceIndex) const override { return most_plans; }
  void cuFFTSetPlanCacheMaxSize(c10::DeviceIndex, int64_t most) const override { most_plans = most; }
  int64_t cuFFTGetPlanCacheSize(c10::DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(c10::DeviceIndex) const override {}
  // Facts of the server's GPU: by them torch takes cuDNN's kernels of batch norm, grid sampling and recurrent networks.
  bool compiledWithCuDNN() const override { return has_cudnn(); }
  bool hasCuDNN() const override { return has_cudnn(); }
  double batchnormMinEpsilonCuDNN() const override { return 0; }  // CUDNN_BN_MIN_EPSILON of every cuDNN since 7.5
  // Asked by what chooses between kernels, as attention does in a wheel with CUDA. The second is not in every release.
  long versionCuDNN() const override { return static_cast<long>(device(current_device()).cudnn_version); }
  long versionRuntimeCuDNN() const { return versionCuDNN(); }
  void deviceSynchronize(c10::DeviceIndex index) const override { synchronize(device(index)); }
};

// DDP times its gradient buckets by this.
class Timer final : public c10d::Timer {
 public:
  std::optional<int64_t> measureDifference(Event from, Event to) override {
    int64_t began = getTimeRef(from), ended = getTimeRef(to);
    if (began == c10d::kUnsetTime || ended == c10d::kUnsetTime) return std::nullopt;
    return ended - began;
  }
};

}  // namespace

void register_hooks() {
  // torch made its empty hooks while it was imported and keeps that object: ours takes its place there. It has no member but the
  // table of functions.
  const at::CUDAHooksInterface& place = at::detail::getCUDAHooks();
  static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface), "the hooks take the place of the empty ones");
  new (const_cast<at::CUDAHooksInterface*>(&place)) Hooks();
  auto* timers = c10d::TimerRegistry();
  if (timers && !timers->Has(c10::kCUDA)) {
    timers->Register(c10::kCUDA, [](c10::Device) -> std::unique_ptr<c10d::Timer> { return std::make_unique<Timer>(); });
  }
}

}  // namespace eat
