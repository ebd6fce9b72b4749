# What find_package(MLX) of mlx-c finds: nothing is looked for, the project has made the target.
if(NOT TARGET mlx)
  message(FATAL_ERROR "building mlx-c: the target mlx has to be there first")
endif()
