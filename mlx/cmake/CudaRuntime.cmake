# What libmlx needs on a machine with an NVIDIA driver and nothing else of NVIDIA's: the toolkit's
# libraries, NVRTC among them, and the headers that it compiles kernels with at run time. libmlx lies in a
# folder lib/ for this, since it looks for headers in ../include, and for the toolkit's in
# ../../nvidia/cu13/include.

# Nothing is compiled with the toolkit here, so where its compiler lies is all that is asked; `payload
# doctor` has looked at its version.
find_program(PAYLOAD_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin DOC "the toolkit's compiler" REQUIRED)
file(REAL_PATH "${PAYLOAD_NVCC}" toolkit)
cmake_path(GET toolkit PARENT_PATH toolkit)
cmake_path(GET toolkit PARENT_PATH toolkit)

if(PAYLOAD_MLX_PROVIDER STREQUAL "prebuilt")
  foreach(dir cccl cute cutlass)
    install(DIRECTORY "${MLX_PREBUILT_DIR}/mlx/include/${dir}" DESTINATION "${folder}/../include" COMPONENT mlx)
  endforeach()
else()
  install(DIRECTORY "${FETCHCONTENT_SOURCE_DIR_CCCL}/include/cuda" "${FETCHCONTENT_SOURCE_DIR_CCCL}/include/nv"
    DESTINATION "${folder}/../include/cccl" COMPONENT mlx)
  install(DIRECTORY "${FETCHCONTENT_SOURCE_DIR_CUTLASS}/include/cute" "${FETCHCONTENT_SOURCE_DIR_CUTLASS}/include/cutlass"
    DESTINATION "${folder}/../include" COMPONENT mlx)
endif()
install(DIRECTORY "${toolkit}/include/" DESTINATION "lib/payload/nvidia/cu13/include" COMPONENT mlx)

if(CMAKE_SYSTEM_NAME MATCHES "^(Linux|Windows)$")
  find_file(PAYLOAD_CUDA_EULA EULA.txt PATHS "${toolkit}" DOC "the toolkit's licence" REQUIRED NO_DEFAULT_PATH)
  include(SystemLibraries)
  payload_system_libraries(COMPONENT mlx FOLDER "${PAYLOAD_MLX_FOLDER}" TARGET mlx
    DIRECTORIES "${toolkit}/lib64" "${toolkit}/lib" "${toolkit}/bin/x64" "${toolkit}/bin" LICENCE "${PAYLOAD_CUDA_EULA}")
endif()
