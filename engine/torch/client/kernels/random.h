// Random numbers: the device's generators live on the server; here stand their numbers.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>

#include "client/connection/state.h"

namespace eat {

constexpr uint64_t DEFAULT_SEED = 67280421310721;  // c10::default_rng_seed_val

void send_seed(Device& device, uint32_t generator, uint64_t seed);
// State of a generator by a number of ours, without a wait; use() sets it again.
uint32_t keep_state(Device& device, uint32_t generator);
void use_state(Device& device, uint32_t generator, uint32_t state);
void drop(Device& device, Dropped what, uint32_t number);
std::string get_state(Device& device, uint32_t generator);
void set_state(Device& device, uint32_t generator, const std::string& state);

const at::Generator& default_generator(int device);
// How often it was seeded.
uint64_t seedings(int device);
at::Generator new_generator(int device);
// 0 for the device's own; the generator is one of ours.
uint32_t generator_number(const at::Generator& generator);

}  // namespace eat
